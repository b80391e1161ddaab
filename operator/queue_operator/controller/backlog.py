"""Which status to write next: the newest per resource, the finished first, the fleeting late."""

import heapq
import itertools
from collections import OrderedDict
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import inf
from typing import Final

from queue_operator.backends.protocol import MirrorEntry
from queue_operator.crd.v1alpha1 import QueueJobStatus
from queue_operator.domain.job import ResourceRef
from queue_operator.domain.shown import ShownJob
from queue_operator.domain.states import JobState, is_terminal

HOLD_S: Final = 2.0
"""A job that ends sooner than this after it was taken in needs no other status but the last."""

PROGRESS_S: Final = 10.0
"""Progress alone is written at most this often."""

REMEMBERED: Final = 20_000
"""Resources whose last written version is kept: the feed may show a change whose state
was written already, because an earlier change showed the job's newest state.
"""

_STALE: Final = 1000

HELD: Final = frozenset({JobState.INITIAL_PENDING, JobState.RUNNING})


Version = tuple[int, datetime, datetime]
"""What tells the newer of two records of a job: a suspension is no transition, nor is progress."""

_NEVER: Final = datetime.min.replace(tzinfo=UTC)
_NONE: Final[Version] = (-1, _NEVER, _NEVER)


def version_of(job: ShownJob) -> Version:
    told_at = job.progress.updated_at if job.progress else _NEVER
    return job.transition, job.suspension_at or _NEVER, told_at


@dataclass(slots=True)
class Write:
    """A status on its way to its resource: of `job`, or the given `status` of a resource
    that has no job. `sequences` are acknowledged when it has arrived; it has waited since
    `since`, or what it replaced has.
    """

    namespace: str
    resource: ResourceRef
    job: ShownJob | None = None
    status: QueueJobStatus | None = None
    sequences: set[int] = field(default_factory=set)
    failures: int = 0
    since: float = 0.0

    @property
    def uid(self) -> str:
        return self.resource.uid

    @property
    def transition(self) -> int:
        return self.version[0]

    @property
    def version(self) -> Version:
        return version_of(self.job) if self.job else _NONE

    @property
    def final(self) -> bool:
        if self.job is None:
            return self.status is not None and bool(self.status.finished)
        return is_terminal(self.job.state)


class Backlog:
    """Coalesces by uid. Times are seconds of one monotonic clock, given by the caller.

    A resource is never in flight twice: what changes meanwhile waits for the answer.
    """

    def __init__(self, hold_s: float = HOLD_S, progress_s: float = PROGRESS_S) -> None:
        self._hold_s = hold_s
        self._progress_s = progress_s
        self._waiting: dict[str, tuple[float, Write]] = {}
        self._in_flight: dict[str, Write] = {}
        self._written: OrderedDict[str, Version] = OrderedDict()
        self._delivered: set[int] = set()
        # One heap for final statuses, one for the rest; entries that no longer agree with
        # `_waiting` are stale and dropped when they come up.
        self._final: list[tuple[float, int, str]] = []
        self._other: list[tuple[float, int, str]] = []
        self._ticket = itertools.count()
        # By uid since when the oldest of its writes has waited, in flight or not, and a heap of
        # the same in which those that no longer agree are stale.
        self._since: dict[str, float] = {}
        self._ages: list[tuple[float, str]] = []

    def __len__(self) -> int:
        return len(self._waiting) + len(self._in_flight)

    def offer(self, entry: MirrorEntry, now: float) -> bool:
        """Takes a change from the feed; False when it is known already."""
        job = entry.job
        if job.resource is None or self._is_written(job.resource.uid, version_of(job)):
            self._delivered.add(entry.sequence)
            return False
        uid = job.resource.uid
        if self._is_in_flight(uid, version_of(job)):
            self._in_flight[uid].sequences.add(entry.sequence)
            return False
        return self._merge(
            Write(job.namespace, job.resource, job=job, sequences={entry.sequence}), now
        )

    def oldest_since(self) -> float | None:
        """Since when the one that waits longest has, in flight or not; None for none."""
        ages = self._ages
        while ages and self._since.get(ages[0][1]) != ages[0][0]:
            heapq.heappop(ages)
        return ages[0][0] if ages else None

    def _waits(self, uid: str, since: float) -> None:
        if since < self._since.get(uid, inf):
            self._since[uid] = since
            heapq.heappush(self._ages, (since, uid))
        # One that waits for ever keeps the stale ones behind it from coming up.
        if len(self._ages) > 2 * len(self._since) + _STALE:
            self._ages = [(at, uid) for uid, at in self._since.items()]
            heapq.heapify(self._ages)

    def _is_written(self, uid: str, version: Version) -> bool:
        return self._written.get(uid, _NONE) >= version

    def _is_in_flight(self, uid: str, version: Version) -> bool:
        flying = self._in_flight.get(uid)
        return flying is not None and flying.version >= version

    def put(self, write: Write, now: float) -> None:
        """Takes a status that comes from no feed."""
        self._merge(write, now)

    def _merge(self, write: Write, now: float) -> bool:
        known = self._waiting.get(write.uid)
        alone = self._is_progress_alone(write)
        # Progress is put off, and does not wait before that.
        write.since = now + self._progress_s if alone else now
        self._waits(write.uid, write.since)
        if known is not None:
            older = known[1]
            older.sequences |= write.sequences
            # Without a job there is nothing to tell the newer by but its coming later.
            if older.job is not None and older.version >= write.version:
                return False
            write.sequences = older.sequences
            write.failures = older.failures
            write.since = min(older.since, write.since)
        due = now + (self._hold_s if self._is_held(write) else 0.0)
        if alone:
            # What comes on and on does not put off what waits.
            due = now + self._progress_s if known is None else known[0]
        self._schedule(write, due)
        return True

    def _is_progress_alone(self, write: Write) -> bool:
        """All else that it tells is in the resource."""
        if write.job is None or write.job.progress is None:
            return False
        return self._written.get(write.uid, _NONE)[:2] == write.version[:2]

    @staticmethod
    def _is_held(write: Write) -> bool:
        return write.job is not None and write.job.state in HELD

    def _schedule(self, write: Write, due: float) -> None:
        self._waiting[write.uid] = (due, write)
        heap = self._final if write.final else self._other
        heapq.heappush(heap, (due, next(self._ticket), write.uid))

    def next_due(self) -> float | None:
        """When something can be taken, None while nothing waits."""
        dues = [heap[0][0] for heap in (self._final, self._other) if self._trim(heap)]
        return min(dues, default=None)

    def _trim(self, heap: list[tuple[float, int, str]]) -> bool:
        while heap and not self._is_live(heap[0]):
            heapq.heappop(heap)
        return bool(heap)

    def _is_live(self, item: tuple[float, int, str]) -> bool:
        due, _, uid = item
        known = self._waiting.get(uid)
        return known is not None and known[0] == due and uid not in self._in_flight

    def take(self, now: float) -> Write | None:
        """The next status to write; it counts as in flight until `done` or `failed`."""
        for heap in (self._final, self._other):
            if self._trim(heap) and heap[0][0] <= now:
                uid = heapq.heappop(heap)[2]
                _, write = self._waiting.pop(uid)
                self._in_flight[uid] = write
                return write
        return None

    def done(self, write: Write) -> None:
        """It arrived, or never will: its changes can be acknowledged."""
        self._land(write, is_over=True)
        if write.sequences:
            self._remember(write.uid, write.version)
        self._delivered |= write.sequences

    def _remember(self, uid: str, version: Version) -> None:
        self._written[uid] = max(version, self._written.get(uid, _NONE))
        self._written.move_to_end(uid)
        if len(self._written) > REMEMBERED:
            self._written.popitem(last=False)

    def failed(self, write: Write, retry_at: float) -> None:
        """It is tried again at `retry_at`, unless something newer has come."""
        write.failures += 1
        self._land(write, is_over=False)
        newer = self._waiting.get(write.uid)
        if newer is None:
            self._schedule(write, retry_at)
            return
        newer[1].sequences |= write.sequences
        newer[1].failures = write.failures
        newer[1].since = min(newer[1].since, write.since)
        self._schedule(newer[1], max(newer[0], retry_at))

    def _land(self, write: Write, *, is_over: bool) -> None:
        self._in_flight.pop(write.uid, None)
        newer = self._waiting.get(write.uid)
        if is_over:
            self._since.pop(write.uid, None)
        if newer is not None:
            self._waits(write.uid, newer[1].since)
            # Its heap entry may have been dropped as stale while this one was in flight.
            self._schedule(newer[1], newer[0])

    def drop(self, entry: MirrorEntry) -> None:
        """A change that is not to be told."""
        self._delivered.add(entry.sequence)

    def delivered(self) -> frozenset[int]:
        """What to acknowledge now."""
        return frozenset(self._delivered)

    def acknowledged(self, sequences: frozenset[int]) -> None:
        """The feed has forgotten these."""
        self._delivered -= sequences
