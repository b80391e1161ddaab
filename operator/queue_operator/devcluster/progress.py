"""Tells the person who waits what is being done and for how long."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol, TextIO


class Progress(Protocol):
    """What long operations report to."""

    def step(self, text: str) -> AbstractContextManager[None]:
        """Brackets one step; it ends, or fails, with the block."""

    def note(self, text: str) -> None:
        """Says something that has no duration."""


class SilentProgress:
    """Reports nothing; for tests and for calls that end at once."""

    @contextmanager
    def step(self, text: str) -> Iterator[None]:
        yield

    def note(self, text: str) -> None:
        return


class LineProgress:
    """One line when a step starts and one when it took longer than a second."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._started = time.monotonic()

    @contextmanager
    def step(self, text: str) -> Iterator[None]:
        started = time.monotonic()
        self.note(f"{text} ...")
        yield
        took_s = time.monotonic() - started
        if took_s >= 1:
            self.note(f"{text}: done in {took_s:.1f} s")

    def note(self, text: str) -> None:
        elapsed_s = time.monotonic() - self._started
        self._stream.write(f"[{elapsed_s:6.1f} s] {text}\n")
        self._stream.flush()


class TerminalProgress:
    """A spinner with the elapsed time, and a tick for each finished step."""

    def __init__(self) -> None:
        from rich.console import Console

        self._console = Console(stderr=True)

    @contextmanager
    def step(self, text: str) -> Iterator[None]:
        from rich.progress import Progress as Bar
        from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

        columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        started = time.monotonic()
        with Bar(*columns, console=self._console, transient=True) as bar:
            bar.add_task(text, total=None)
            yield
        self._console.print(f"[green]✓[/] {text} [dim]{time.monotonic() - started:.1f} s[/]")

    def note(self, text: str) -> None:
        self._console.print(text, style="dim", highlight=False)


def progress_for(stream: TextIO) -> Progress:
    """A spinner on a terminal, plain lines anywhere else."""
    return TerminalProgress() if stream.isatty() else LineProgress(stream)
