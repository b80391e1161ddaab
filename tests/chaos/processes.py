"""The programs of a chaos run: started, struck, started again, and never left behind."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.chaos.proxy import Address

ROOT: Final = Path(__file__).resolve().parents[2]
_SERVING: Final = re.compile(r"serving: REST on port (\d+), gRPC on port (\d+)")

_WATCHING: Final = "watching QueueJobs"


@dataclass
class Program:
    """One role that a row of processes plays. `number` counts them; each has its own logs.
    `outside` are variables that are no settings of ours.
    """

    module: str
    name: str
    folder: Path
    settings: Mapping[str, str] = field(default_factory=dict)
    outside: Mapping[str, str] = field(default_factory=dict)
    number: int = 0
    process: subprocess.Popen[bytes] | None = None
    frozen: bool = False

    @property
    def title(self) -> str:
        return f"{self.name}-{self.number}"

    @property
    def output(self) -> Path:
        return self.folder / f"{self.title}.out"

    def start(self) -> None:
        self.number += 1
        self.frozen = False
        chaos = {
            "CHAOS_NAME": self.title,
            "CHAOS_LOG": str(self.folder / f"{self.title}.jsonl"),
            "CHAOS_PARENT": str(os.getpid()),
        }
        given = {f"QUEUE_OPERATOR_{key}": value for key, value in self.settings.items()}
        with self.output.open("wb") as stream:
            self.process = subprocess.Popen(
                [sys.executable, "-m", f"tests.chaos.programs.{self.module}"],
                cwd=ROOT,
                env={**os.environ, **self.outside, **given, **chaos},
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
            )

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def send(self, number: signal.Signals) -> None:
        if self.process is not None and self.running:
            self.process.send_signal(number)

    def freeze(self) -> None:
        self.send(signal.SIGSTOP)
        self.frozen = True

    def thaw(self) -> None:
        self.send(signal.SIGCONT)
        self.frozen = False

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def kill_whole(self) -> None:
        """With the processes that it has started, as when a container is killed."""
        if self.process is None:
            return
        # So that it starts no other one meanwhile.
        self.send(signal.SIGSTOP)
        pid = self.process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        for child in map(int, children):
            os.kill(child, signal.SIGKILL)
        self.kill()

    def end(self, seconds: float) -> int | None:
        """Its exit status after SIGTERM; None if it did not end in time."""
        if self.process is None:
            return None
        self.thaw()
        self.send(signal.SIGTERM)
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def doors(self) -> tuple[Address, Address] | None:
        """Where an operator's REST and gRPC doors are; None while it has none."""
        told = _SERVING.search(self.output.read_text()) if self.running else None
        if told is None:
            return None
        return ("127.0.0.1", int(told[1])), ("127.0.0.1", int(told[2]))

    def watches(self) -> bool:
        """Whether an operator has seen its QueueJobs."""
        return self.running and _WATCHING in self.output.read_text()


class Guard:
    """Sees to it that a server in the folder ends and leaves nothing, should we be killed."""

    def __init__(self, folder: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.programs.guard", str(folder)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            start_new_session=True,
        )

    def dismiss(self) -> None:
        """The server has been seen to."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
