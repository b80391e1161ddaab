"""QueueJobs that wait until their namespace is within its quota: by name, not by content."""

import asyncio
from collections import OrderedDict
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final

from queue_operator.domain.errors import QuotaExceeded

LEAST_PAUSE_S: Final = 1.0
MOST_PAUSE_S: Final = 15.0
"""Between two tries in one namespace, whatever the quota says of itself."""
MOST_AT_ONCE: Final = 64


@dataclass(frozen=True, slots=True)
class DeferredJob:
    """An object of which nothing is stored. `created` is when it was made, or when it went to the
    end of its line, as the API server writes times.
    """

    uid: str
    namespace: str
    name: str
    generation: int
    created: str = ""


@dataclass(slots=True)
class _Line:
    """What waits in one namespace, the oldest in front."""

    error: QuotaExceeded
    due_s: float
    step: int = 1
    in_order: bool = True
    jobs: OrderedDict[str, DeferredJob] = field(default_factory=OrderedDict)

    @property
    def last(self) -> DeferredJob:
        return self.jobs[next(reversed(self.jobs))]

    def sort(self) -> None:
        """A list of all objects, as after a restart, comes by name."""
        if not self.in_order:
            oldest_first = sorted(self.jobs.items(), key=lambda item: item[1].created)
            self.jobs = OrderedDict(oldest_first)
            self.in_order = True


class Deferred:
    """Times are seconds of one monotonic clock, given by the caller. Only a cache: after a restart
    the watch shows all of them again.
    """

    def __init__(self) -> None:
        self._lines: dict[str, _Line] = {}
        self._namespaces: dict[str, str] = {}
        self._some = asyncio.Event()

    def __len__(self) -> int:
        return len(self._namespaces)

    def __contains__(self, uid: str) -> bool:
        return uid in self._namespaces

    async def wait(self) -> None:
        """Until there is one."""
        await self._some.wait()

    def reason(self, namespace: str) -> QuotaExceeded | None:
        """Why somebody waits there, behind whom others have to wait too."""
        line = self._lines.get(namespace)
        return None if line is None else line.error

    def put(self, job: DeferredJob, error: QuotaExceeded, now: float) -> bool:
        """Behind the older ones of its line, unless it has a place there. False when nothing is
        new.
        """
        line = self._lines.get(job.namespace)
        if line is None:
            line = self._lines[job.namespace] = _Line(error, now + _pause_s(error))
        known = line.jobs.get(job.uid)
        if known is None:
            line.in_order &= not line.jobs or line.last.created <= job.created
            line.jobs[job.uid] = job
        else:
            line.jobs[job.uid] = replace(job, created=known.created)
        self._namespaces[job.uid] = job.namespace
        self._some.set()
        return known is None or known.generation != job.generation

    def drop(self, uid: str) -> bool:
        """It was taken in, or is gone. False when it did not wait."""
        namespace = self._namespaces.pop(uid, None)
        if namespace is None:
            return False
        line = self._lines[namespace]
        del line.jobs[uid]
        if not line.jobs:
            del self._lines[namespace]
        if not self._namespaces:
            self._some.clear()
        return True

    def due(self, now: float) -> list[str]:
        """Namespaces to try again, the longest waiting first."""
        due = [(line.due_s, name) for name, line in self._lines.items() if line.due_s <= now]
        return [name for _, name in sorted(due)]

    def is_due(self, namespace: str, now: float) -> bool:
        line = self._lines.get(namespace)
        return line is not None and line.due_s <= now

    def first(self, namespace: str, room: int | None) -> list[DeferredJob]:
        """Those to try now; they keep their places."""
        line = self._lines.get(namespace)
        if line is None:
            return []
        line.sort()
        most = line.step if room is None else min(line.step, room)
        return list(islice(line.jobs.values(), most))

    def move_to_end(self, job: DeferredJob) -> None:
        """It cannot be tried now, and is not to hold up those behind it."""
        line = self._lines.get(job.namespace)
        if line is not None and (waiting := line.jobs.get(job.uid)) is not None:
            line.sort()
            line.jobs[job.uid] = replace(waiting, created=line.last.created)
            line.jobs.move_to_end(job.uid)

    def went_in(self, namespace: str) -> None:
        """All that were tried: more of them may be tried at once."""
        if (line := self._lines.get(namespace)) is not None:
            line.step = min(line.step * 2, MOST_AT_ONCE)

    def put_off(self, namespace: str, error: QuotaExceeded | None, now: float) -> None:
        """There is no room for more now."""
        if (line := self._lines.get(namespace)) is not None:
            line.error = error or line.error
            line.step = 1
            line.due_s = now + _pause_s(line.error)


def _pause_s(error: QuotaExceeded) -> float:
    return min(max(error.retry_after_s or 0.0, LEAST_PAUSE_S), MOST_PAUSE_S)
