"""An event loop whose time is moved by hand."""

import asyncio
import selectors
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from typing import Any, Final, TypeVar

_T = TypeVar("_T")

QUIET_S: Final = 0.02
"""Real time for which nothing may arrive from a socket before all counts as waiting."""

Select = Callable[[float | None], list[tuple[selectors.SelectorKey, int]]]


class StillBusy(AssertionError):
    """Something went on for longer, in real time, than the test has patience for."""


class ManualLoop(asyncio.SelectorEventLoop):
    """Its `time` stands still but for `move_to`."""

    def __init__(self, patience_s: float) -> None:
        self._manual_s = 0.0
        self._patience_s = patience_s
        self._files = _Selector(self._rested)
        self._threads = 0
        self._parked = 0
        self._counting = threading.Lock()
        self._next_step: Callable[[], bool] = _none
        self._rest: asyncio.Future[None] | None = None
        super().__init__(self._files)
        self._own_files = len(self._files.get_map())
        # Timers within the resolution are due. Sums of floats are not exact to a nanosecond.
        self._clock_resolution = 1e-6

    def time(self) -> float:
        return self._manual_s

    def move_to(self, time_s: float) -> None:
        self._manual_s = max(time_s, self._manual_s)

    def next_timer(self) -> float | None:
        """When the next one is due."""
        timers: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]
        return min((one.when() for one in timers if not one.cancelled()), default=None)

    def run(self, next_step: Callable[[], bool]) -> None:
        """Until all rests: no callback is ready at this time, and no thread works that does not
        wait for the loop itself. Then `next_step` says whether it gave the loop more to do.

        Raises StillBusy.
        """
        self._rest, self._next_step = self.create_future(), next_step
        try:
            self.run_until_complete(self._rest)
        finally:
            self._rest, self._next_step = None, _none

    def complete(self, work: Coroutine[Any, Any, _T], next_step: Callable[[], bool]) -> _T:
        """As `run`, but ends with the work, and raises what it raises."""
        task = self.create_task(work)
        self.run(lambda: not task.done() and next_step())
        if not task.done():
            task.cancel()
            raise StillBusy(f"{work!r} waits for something that does not come")
        return task.result()

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., _T], *args: Any
    ) -> asyncio.Future[_T]:
        self._count(threads=1)
        future = super().run_in_executor(executor, func, *args)
        future.add_done_callback(lambda _: self._count(threads=-1))
        return future

    def park(self) -> None:
        """The calling thread is about to wait for something that only this loop can give."""
        self._count(parked=1)
        self.call_soon_threadsafe(_none)

    def unpark(self) -> None:
        """It has been given: the thread works again."""
        self._count(parked=-1)

    def _count(self, *, threads: int = 0, parked: int = 0) -> None:
        with self._counting:
            self._threads += threads
            self._parked += parked

    def _rested(self, select: Select) -> list[tuple[selectors.SelectorKey, int]]:
        """No callback is ready."""
        if self._rest is None or self._rest.done():
            return select(0)
        working = self._threads > self._parked
        if working or len(self._files.get_map()) > self._own_files:
            if events := select(self._patience_s if working else QUIET_S):
                return events
            if working:
                text = f"a function in a thread did not end within {self._patience_s:g} s"
                self._rest.set_exception(StillBusy(text))
                return []
        if not self._next_step():
            self._rest.set_result(None)
        return select(0)


def _none() -> bool:
    return False


class _Selector(selectors.DefaultSelector):
    """Lets the loop decide what to do where another one would sleep until the next timer."""

    def __init__(self, rested: Callable[[Select], list[tuple[selectors.SelectorKey, int]]]) -> None:
        super().__init__()
        self._rested = rested

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is not None and timeout <= 0:
            return super().select(timeout)
        return self._rested(super().select)
