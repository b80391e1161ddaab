"""Jobs whose last workers were lost with them. Each runs on a worker that has nothing else to do,
so that it can take nobody with it.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from queue_operator.domain.clock import Clock
from queue_operator.domain.job import Assignment
from queue_operator.queue.capacity import JobKey, Slots

PATIENCE_S: Final = 60.0
"""How long a worker is kept free of other jobs until what it has is done."""
PAUSE_S: Final = 10.0
"""How long a job for which no worker is kept free waits, until it is looked for again."""
_WAITS: Final = 0.5
"""Of its timeout, which runs while it waits: what a job with one waits at most."""
_TRIES: Final = 5
"""After so many workers that were not done in time, the next is kept free until it is."""
_REMEMBERED: Final = 10_000


class Isolation:
    """Which workers are kept free: half of those that are connected here, and one at least. The
    rest goes on with other jobs, however many may be suspects.
    """

    def __init__(self, connected: Callable[[], int]) -> None:
        self._connected = connected
        self._reserved: set[Apart] = set()
        self._tries: dict[JobKey, int] = {}

    def reserve(self, stream: "Apart") -> bool:
        """Whether the stream may be kept free."""
        if len(self._reserved - {stream}) >= max(self._connected() // 2, 1):
            return False
        self._reserved.add(stream)
        return True

    def free(self, stream: "Apart") -> None:
        self._reserved.discard(stream)

    def may_give_up(self, job: JobKey) -> bool:
        """Whether a worker that is not free in time may be left. This is one of its tries."""
        if len(self._tries) >= _REMEMBERED:
            self._tries.clear()
        self._tries[job] = self._tries.get(job, 0) + 1
        return self._tries[job] <= _TRIES

    def runs(self, job: JobKey) -> None:
        self._tries.pop(job, None)


class Apart:
    """The suspects of one stream: those that wait for its worker to be free, and the one that has
    the worker to itself.
    """

    def __init__(self, isolation: Isolation, slots: Slots, clock: Clock) -> None:
        self._isolation = isolation
        self._slots = slots
        self._clock = clock
        self._waiting: dict[str, Assignment] = {}
        self._alone: Assignment | None = None
        self._since_s = 0.0

    def __contains__(self, token: str) -> bool:
        return token in self._waiting

    def __iter__(self) -> Iterator[Assignment]:
        return iter(self._waiting.values())

    def may_take(self) -> bool:
        return self._isolation.reserve(self)

    def add(self, job: Assignment) -> None:
        """Its slot is taken already."""
        self._since_s = self._clock.monotonic()
        self._waiting[job.token] = job

    def pop(self, token: str) -> Assignment | None:
        job = self._waiting.pop(token, None)
        self._rest()
        return job

    def take_all(self) -> list[Assignment]:
        """The stream runs no more of them."""
        jobs = list(self._waiting.values())
        self._waiting.clear()
        self._rest()
        return jobs

    def end(self) -> list[Assignment]:
        """The stream is over; what its worker has is for its lease to decide."""
        self._alone = None
        return self.take_all()

    def holds_back(self) -> bool:
        """Whether the stream takes no other jobs now."""
        if self._alone is not None and not self._has(self._alone):
            self._alone, self._since_s = None, self._clock.monotonic()
            self._rest()
        return bool(self._waiting) or self._alone is not None

    def next(self) -> Assignment | None:
        """The one that runs now, if the worker has nothing else."""
        if not self.holds_back():
            self._isolation.free(self)
            return None
        if self._alone is not None:
            return None
        if any(slot.token not in self._waiting for _, slot in self._slots.items()):
            return None
        token = next(iter(self._waiting))
        job = self._alone = self._waiting.pop(token)
        self._isolation.runs(_key(job))
        if job.timeout_s is not None:
            job = job._replace(timeout_s=max(job.timeout_s - self._waited_s(job), 0.0))
        slot = self._slots.get(_key(job))
        if slot is not None:
            slot.since_s = self._clock.monotonic()
        return job

    def overdue(self) -> list[Assignment]:
        """Those that another worker may sooner be free for. They are not waiting any more."""
        given_up = [job for job in self if self._runs_out(job)]
        self._forget(given_up)
        late = self._clock.monotonic() - self._since_s > PATIENCE_S
        if late and self._alone is None:
            self._since_s = self._clock.monotonic()
            impatient = [job for job in self if self._isolation.may_give_up(_key(job))]
            self._forget(impatient)
            given_up += impatient
        return given_up

    def _runs_out(self, job: Assignment) -> bool:
        """What is left of its timeout would be too little for its handler."""
        return job.timeout_s is not None and self._waited_s(job) > job.timeout_s * _WAITS

    def _waited_s(self, job: Assignment) -> float:
        slot = self._slots.get(_key(job))
        return 0.0 if slot is None else self._clock.monotonic() - slot.since_s

    def _forget(self, jobs: Iterable[Assignment]) -> None:
        for job in jobs:
            del self._waiting[job.token]
        self._rest()

    def _has(self, job: Assignment) -> bool:
        slot = self._slots.get(_key(job))
        return slot is not None and slot.token == job.token

    def _rest(self) -> None:
        if not self._waiting and self._alone is None:
            self._isolation.free(self)


def _key(job: Assignment) -> JobKey:
    return (job.namespace, job.job_id)
