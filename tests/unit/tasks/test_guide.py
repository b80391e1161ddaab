"""The guide's first example prints what the guide says."""

import re
import subprocess
import sys
from pathlib import Path

from queue_operator.domain.errors import QueueError
from queue_operator.tasks import TaskBackend, TaskStatus, errors

GUIDE = (Path(__file__).resolve().parents[3] / "docs" / "guides" / "tasks.md").read_text()


def block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", GUIDE, re.DOTALL)
    assert found
    return found[1]


def test_the_example_prints_what_the_guide_says(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", block("python")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    assert done.stdout == block("text")
    assert [path.name for path in tmp_path.iterdir()] == ["tasks.db"]


def test_the_guide_tells_every_call_status_and_error() -> None:
    calls = [name for name in vars(TaskBackend) if not name.startswith("_")]
    named = [
        name
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, QueueError)
    ]
    missing = [
        word
        for word in [*(f"`{call}(" for call in calls), *TaskStatus, *named]
        if word not in GUIDE and word not in {"InvalidTransition", "QueueError"}
    ]
    assert len(calls) == 7
    assert missing == []
