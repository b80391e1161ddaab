"""What the person in front of a run sees: bars while it works, a line per finished run."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from bench.runner import Event

OnTick = Callable[[Event], None]


class Board:
    """Writes to standard error, so that standard output has the results alone."""

    def __init__(self, cells: int, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True)
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f} %"),
            TimeElapsedColumn(),
            console=self._console,
            # The bars must not take much of the processor from what is measured.
            refresh_per_second=2,
        )
        self._whole = self._progress.add_task("scenarios", total=cells)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    @contextmanager
    def run(self, what: str, *, jobs: int = 0, seconds: float = 0.0) -> Iterator[OnTick]:
        """A bar for one run, which lasts until `jobs` are done or `seconds` have passed."""
        task = self._progress.add_task(what, total=seconds or jobs or None)

        def advance(event: Event) -> None:
            done = event["at"] if seconds else event["completed"] or event["submitted"]
            self._progress.update(task, completed=done)

        try:
            yield advance
        finally:
            self._progress.remove_task(task)

    def cell_done(self) -> None:
        self._progress.advance(self._whole)

    def say(self, text: str) -> None:
        self._console.print(text, highlight=False, soft_wrap=True)
