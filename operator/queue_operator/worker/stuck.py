"""Handlers that cannot begin, and those that go on after their attempt has ended."""

import logging
from collections.abc import Iterable
from typing import Final

from queue_operator.worker.handlers import Place
from queue_operator.worker.runner import Fate, Run

logger = logging.getLogger(__name__)

START_TICKS: Final = 3
"""So many heartbeats, one lease TTL, a job waits here to begin, then others get it."""
STUCK_TICKS: Final = 6

_GOES_ON: Final = {
    Place.THREAD: (
        "its function goes on, as a thread cannot be ended: look at ctx.is_cancelled() in it, give "
        'its calls timeouts of their own, or register it with runs_in="process"'
    ),
    Place.LOOP: (
        "its coroutine goes on: it blocks the event loop, or catches asyncio.CancelledError and "
        "does not raise it again"
    ),
    Place.PROCESS: "its process cannot be ended: the kernel waits for a device or a file system",
}
_CANNOT_BEGIN: Final = (
    "a coroutine blocks the event loop, and with it all others: await, use asyncio.to_thread, or "
    "make it a plain function"
)
_HAS_NO_THREAD: Final = (
    "no thread was free for it, of which the log tells, or a coroutine blocks the event loop, "
    "which its middleware or a dependency needs"
)


class StuckWatch:
    """Counts heartbeats, as a clock that stands still while the worker is cut off."""

    def __init__(self) -> None:
        self._stuck: dict[Run, None] = {}
        self._told: set[tuple[str, str]] = set()

    @property
    def any(self) -> bool:
        """Whether a handler goes on that should have ended, or could not begin."""
        return bool(self._stuck)

    @property
    def count(self) -> int:
        """How many of these go on."""
        return len(self._stuck)

    def tick(self, runs: Iterable[Run], waiting: Iterable[Run]) -> list[Run]:
        """Gives those that have waited long enough to begin; `waiting` are behind the handler of
        an earlier attempt of theirs.
        """
        late = [run for run in runs if self._is_late(run)]
        for run in late:
            self._tell(run, _why_not(run))
        behind = [run for run in waiting if self._is_late(run)]
        for run in behind:
            self._tell(run, "the handler of an earlier attempt still runs here")
        return [*late, *behind]

    def _is_late(self, run: Run) -> bool:
        if run.begun and run.fate is Fate.OPEN:
            return False
        run.ticks += 1
        if run.fate is Fate.OPEN:
            return run.ticks >= START_TICKS
        if run.ticks == STUCK_TICKS:
            self._stuck[run] = None
            logger.error(
                "job %s (%s) is over, and %s. It keeps its slot, and this worker is not ready, "
                "until it ends; to free the slot now, restart the worker",
                run.job_id,
                run.spec.type,
                _GOES_ON[run.spec.place] if run.begun else f"could not begin: {_why_not(run)}",
            )
        return False

    def _tell(self, run: Run, why: str) -> None:
        """Once per type and reason, until nothing is stuck any more."""
        kind = (run.spec.type, why)
        if kind not in self._told:
            self._told.add(kind)
            logger.warning(
                "job %s (%s) could not begin here and is handed back, which counts no attempt: %s",
                run.job_id,
                run.spec.type,
                why,
            )

    def ended(self, run: Run) -> None:
        """The handler has returned after all, or never began."""
        if self._stuck.pop(run, run) is None:
            logger.info("job %s (%s): its handler has ended at last", run.job_id, run.spec.type)
        if not self._stuck:
            self._told.clear()


def _why_not(run: Run) -> str:
    return _CANNOT_BEGIN if run.spec.place is Place.LOOP else _HAS_NO_THREAD
