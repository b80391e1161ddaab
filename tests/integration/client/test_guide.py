"""The program of the guide."""

import re
import threading
from pathlib import Path

import pytest
from tests.integration.client.stage import TOKEN, Stage

from queue_operator.domain.job import Job
from queue_operator.domain.states import Event

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "submit-jobs.md"


def test_it_runs_as_it_is_printed(
    stage: Stage, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    token = tmp_path / "token"
    token.write_text(TOKEN)
    program = program.replace("http://queue-operator.queue-operator:8080", stage.url)
    program = program.replace("/var/run/queue/token", str(token))
    running = threading.Thread(target=exec, args=(program, {}))
    running.start()
    # A static token's own namespace.
    here = Stage(stage.url, stage.loop, stage.queue, stage.backend, "default")
    jobs: list[Job] = []
    while running.is_alive() and not jobs:
        jobs = here.run(here.backend.dequeue_jobs("worker", (), 1, namespace="default"))
    here.settle(jobs[0], Event.COMPLETE, result=b"null", result_content_type="application/json")
    running.join(60)
    assert capsys.readouterr().out == f"COMPLETED\n{jobs[0].id} COMPLETED\n"
