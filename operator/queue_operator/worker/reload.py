"""For development: a worker that starts anew when its code changes."""

import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Final

logger = logging.getLogger(__name__)

LOOK_S: Final = 0.5
GRACE_S: Final = 1.0
"""What running jobs get before a restart, unless QUEUE_OPERATOR_GRACE_S says otherwise."""
END_S: Final = 10.0
"""A worker that is not gone that long after its grace is killed."""

Snapshot = dict[Path, tuple[int, int]]


def snapshot(folder: Path) -> Snapshot:
    """Time and size of each Python file, but for those of virtual environments and hidden
    folders.
    """
    found: Snapshot = {}
    for path in _python_files(folder):
        try:
            status = path.stat()
        except OSError:
            continue  # deleted meanwhile
        found[path] = (status.st_mtime_ns, status.st_size)
    return found


def _python_files(folder: Path) -> Iterator[Path]:
    for parent, folders, files in os.walk(folder):
        at = Path(parent)
        folders[:] = [name for name in folders if _is_code(at / name)]
        yield from (at / name for name in files if name.endswith(".py"))


def _is_code(folder: Path) -> bool:
    hidden = folder.name.startswith(".") or folder.name in ("__pycache__", "node_modules")
    return not (hidden or (folder / "pyvenv.cfg").exists())


class Reloader:
    """Runs `command` as a child process and again after each change in `folder`.

    A child that ends by itself with an error is not started again before the next change. On
    SIGTERM or SIGINT the child is asked to drain, and its exit status is this process's.
    """

    def __init__(self, command: Sequence[str], folder: Path, *, look_s: float = LOOK_S) -> None:
        self._command = list(command)
        self._folder = folder
        self._look_s = look_s
        self._stopped = threading.Event()
        self._child: subprocess.Popen[bytes] | None = None
        self._asked = False
        self._grace_s = float(os.environ.get("QUEUE_OPERATOR_GRACE_S") or GRACE_S)

    def run(self) -> int:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._caught)
        logger.info("watching %s", self._folder)
        while True:
            seen = snapshot(self._folder)
            child = self._start()
            changed = self._changed(child, seen)
            status = self._end(child)
            if not changed:
                return status

    def _caught(self, _number: int, _frame: FrameType | None) -> None:
        """A second one reaches the child too, which then hands back at once. So does Ctrl-C,
        which a terminal sends to both.
        """
        self._stopped.set()
        if self._child is not None:
            self._ask(self._child)

    def _ask(self, child: "subprocess.Popen[bytes]") -> None:
        self._asked = True
        child.terminate()

    def _start(self) -> "subprocess.Popen[bytes]":
        # Bytecode is told from its source by whole seconds; a quick change would be missed.
        environment = {
            "QUEUE_OPERATOR_GRACE_S": str(self._grace_s),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        child = self._child = subprocess.Popen(self._command, env=os.environ | environment)
        # A signal meanwhile found no child, or the last one.
        self._asked = False
        return child

    def _changed(self, child: "subprocess.Popen[bytes]", seen: Snapshot) -> bool:
        """Waits for a change; False when there is nothing more to run."""
        told = False
        while not self._stopped.wait(self._look_s):
            if (now := snapshot(self._folder)) != seen:
                _tell(seen, now)
                return True
            status = child.poll()
            if status == 0:
                return False
            if status is not None and not told:
                told = True
                logger.warning("the worker ended with status %d: waiting for a change", status)
        return False

    def _end(self, child: "subprocess.Popen[bytes]") -> int:
        """The child's exit status, once it is gone."""
        if child.poll() is None and not self._asked:
            self._ask(child)
        try:
            return child.wait(self._grace_s + END_S)
        except subprocess.TimeoutExpired:
            logger.warning("the worker does not end: killing it")
            child.kill()
            return child.wait()


def _tell(before: Snapshot, after: Snapshot) -> None:
    changed = {path for path, _ in before.items() ^ after.items()}
    logger.info("changed: %s", ", ".join(sorted(str(path) for path in changed)))


def command_of(*arguments: str) -> list[str]:
    """`queue-worker` with these arguments, in this interpreter."""
    return [sys.executable, "-m", "queue_operator.worker.main", *arguments]
