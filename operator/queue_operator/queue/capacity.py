"""Slots of one stream: who takes one, and when it comes back. Pure.

A job takes a slot while the store has it RUNNING or CANCELLING for this stream (`stored`)
or while the worker says that it still runs it (`reported`). So for every history
`free + busy = capacity`, and a worker whose lost job still runs is not overfilled.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

JobKey = tuple[str, str]
"""Namespace and job id."""

UNKNOWN_TYPE: Final = ""
"""A job taken over from another process: it counts against the limit of every type."""


@dataclass(slots=True)
class Slot:
    """Why a job takes a slot. `order` grows with each assignment; `since_s` is when it was
    assigned, on the clock that paces the queue.
    """

    token: str
    type: str
    order: int
    since_s: float
    stored: bool = True
    reported: bool = False


class Slots:
    """`limits` bounds single types below the capacity; other types share what is free."""

    def __init__(self, capacity: int, limits: Mapping[str, int] | None = None) -> None:
        self.capacity = capacity
        self._limits = dict(limits or {})
        self._slots: dict[JobKey, Slot] = {}
        self._by_type: Counter[str] = Counter()
        self.taken = 0
        """Jobs that the store took away since the worker was heard of last."""

    def limit(self, limits: Mapping[str, int]) -> None:
        """Other limits of single types from now on; what is taken stays taken."""
        self._limits = dict(limits)

    @property
    def busy(self) -> int:
        return len(self._slots)

    @property
    def free(self) -> int:
        return max(self.capacity - len(self._slots), 0)

    def free_for(self, job_type: str) -> int:
        """Free slots for jobs of a type, its own limit respected."""
        limit = self._limits.get(job_type)
        if limit is None:
            return self.free
        used = self._by_type[job_type] + self._by_type[UNKNOWN_TYPE]
        return max(min(self.free, limit - used), 0)

    def get(self, key: JobKey) -> Slot | None:
        return self._slots.get(key)

    def items(self) -> Iterator[tuple[JobKey, Slot]]:
        return iter(self._slots.items())

    def take(self, key: JobKey, token: str, job_type: str, order: int, now_s: float) -> None:
        """A claim assigned the job. One that the worker still runs keeps its one slot."""
        before = self._slots.get(key)
        reported = before is not None and before.reported
        self._drop(key)
        self._put(key, Slot(token, job_type, order, now_s, reported=reported))

    def adopt(
        self, key: JobKey, token: str, job_type: str, order: int, now_s: float, *, stored: bool
    ) -> None:
        """The worker brought the job along from an earlier connection."""
        self._drop(key)
        self._put(key, Slot(token, job_type, order, now_s, stored=stored, reported=True))

    def settle(self, key: JobKey, token: str | None = None) -> bool:
        """The job left the worker with an outcome: its slot is free. `token` None: any."""
        slot = self._slots.get(key)
        if slot is None or token not in (None, slot.token):
            return False
        self._drop(key)
        return True

    def lose(self, key: JobKey, token: str | None = None, *, before: int | None = None) -> bool:
        """The store took the job away; a worker that reports it keeps the slot taken.

        `before` spares a job that was assigned again since the news was on its way.
        """
        slot = self._slots.get(key)
        if slot is None or token not in (None, slot.token):
            return False
        if before is not None and slot.order > before:
            return False
        self.taken += slot.stored
        slot.stored = False
        return self._drop_if_over(key, slot)

    def doubt(self, key: JobKey, token: str | None = None) -> None:
        """The worker is done with the job, but the store may still count it as running."""
        slot = self._slots.get(key)
        if slot is not None and token in (None, slot.token):
            slot.reported = False
            self._drop_if_over(key, slot)

    def compare(self, stored: Mapping[JobKey, str], before: int) -> list[JobKey]:
        """What the store no longer counts for this stream, by its tokens. They are as old as
        assignment `before`; later ones are not looked at.
        """
        gone = []
        for key, slot in self._slots.items():
            if stored.get(key) == slot.token:
                slot.stored = True
            elif slot.stored and slot.order <= before:
                gone.append(key)
        return gone

    def report(self, keys: Iterable[JobKey]) -> bool:
        """The worker says that it runs just these; jobs this stream never had are ignored."""
        named = set(keys)
        freed = False
        for key, slot in list(self._slots.items()):
            slot.reported = key in named
            freed = self._drop_if_over(key, slot) or freed
        return freed

    def _put(self, key: JobKey, slot: Slot) -> None:
        self._slots[key] = slot
        self._by_type[slot.type] += 1

    def _drop(self, key: JobKey) -> None:
        slot = self._slots.pop(key, None)
        if slot is not None:
            self._by_type[slot.type] -= 1

    def _drop_if_over(self, key: JobKey, slot: Slot) -> bool:
        if slot.stored or slot.reported:
            return False
        self._drop(key)
        return True


def share(total: int, wants: Sequence[int]) -> list[int]:
    """Splits `total` over `wants` so that nobody can get more without one who has less
    losing (max-min fairness); what does not divide goes to the first.
    """
    left = min(total, sum(wants))
    level = 0
    for done, want in enumerate(sorted(wants)):
        level = left // (len(wants) - done)
        if want > level:
            left -= level * (len(wants) - done)
            break
        left -= want
        level = want
    shares = [min(want, level) for want in wants]
    for index, want in enumerate(wants):
        if left and want > level:
            shares[index] += 1
            left -= 1
    return shares
