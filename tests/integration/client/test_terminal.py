"""What is drawn where somebody looks: bars, and a view that lives."""

import contextlib
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.integration.client.stage import TOKEN, Stage

PROGRAM = Path(sys.executable).with_name("queue-operator")


class Screen:
    """The terminal of a process. `until` reads what it shows until a text is there."""

    def __init__(self, stage: Stage, *arguments: str) -> None:
        known = {"URL": stage.url, "TOKEN": TOKEN, "NAMESPACE": stage.namespace}
        self._ours, theirs = pty.openpty()
        self.process = subprocess.Popen(
            [PROGRAM, *arguments],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            # Whoever runs the tests in the background may have had it ignored.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            env={
                **os.environ,
                "TERM": "xterm",
                "COLUMNS": "120",
                **{f"QUEUE_OPERATOR_{name}": value for name, value in known.items()},
            },
        )
        os.close(theirs)
        self.shown = ""

    def until(self, text: str) -> None:
        # The terminal of a process that has ended gives an error, or nothing.
        with contextlib.suppress(OSError):
            while text not in self.shown and (read := os.read(self._ours, 65536)):
                self.shown += read.decode(errors="replace")
        assert text in self.shown, self.shown

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def end(self) -> int:
        with contextlib.suppress(OSError):
            while read := os.read(self._ours, 65536):
                self.shown += read.decode(errors="replace")
        return self.process.wait(60)

    def close(self) -> None:
        os.close(self._ours)
        self.process.kill()
        self.process.wait(60)


@contextlib.contextmanager
def screen(stage: Stage, *arguments: str) -> Iterator[Screen]:
    made = Screen(stage, *arguments)
    try:
        yield made
    finally:
        made.close()


def test_whoever_says_yes_sees_how_far_it_is(stage: Stage) -> None:
    for n in range(3):
        stage.json("submit", "resize", str(n))
    with screen(stage, "cancel", "--type", "resize") as seen:
        seen.until("3 jobs will be cancelled. Go on? [y/N]:")
        assert seen.shown.count("SCHEDULED") == 3
        seen.type("y\n")
        assert seen.end() == 0
    assert "3/3" in seen.shown
    assert "3 jobs cancelled" in seen.shown


def test_the_queue_is_watched_until_ctrl_c(stage: Stage) -> None:
    with screen(stage, "top", "--interval", "100ms") as seen:
        seen.until("0 ready")
        stage.json("submit", "resize", "1")
        seen.until("1 ready")
        seen.process.send_signal(signal.SIGINT)
        assert seen.end() == 0
    assert re.search(r"resize +1 +0 +0 +0", seen.shown)
    assert "Traceback" not in seen.shown


def test_a_file_is_loaded_with_a_bar(stage: Stage, tmp_path: Path) -> None:
    file = tmp_path / "jobs.jsonl"
    file.write_text('{"payload": 1}\n' * 50)
    with screen(stage, "submit", "ping", "--file", str(file)) as seen:
        assert seen.end() == 0
    assert "submitting" in seen.shown
    assert "100%" in seen.shown
    assert "50 jobs submitted" in seen.shown
