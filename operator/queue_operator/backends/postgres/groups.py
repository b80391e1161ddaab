"""Streams that ask for the same share the jobs that are found for them; how deep to look for
those is decided here.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from math import ceil, sqrt
from typing import Final, NamedTuple

from queue_operator.backends.postgres.lanes import Lane
from queue_operator.domain.job import Demand

# Up to this many lanes, every lane is looked at as deep as the claim is long.
_FEW_LANES: Final = 4
_LEAST_PER_LANE: Final = 2
# A claim that finds so many jobs held by others comes back short rather than look at more.
_FURTHEST: Final = 10_000

Slot = tuple[int, Demand]
"""Room for one job: which of the demands it belongs to, and that demand."""


class Looked(NamedTuple):
    """How many jobs were looked at, whether a lane may hold more, and how many were taken."""

    jobs: int
    cut_off: bool
    taken: int


class Group:
    """Streams that ask for the same, and how far a claim for them has come."""

    def __init__(self, demands: Sequence[Demand], lanes: Sequence[Lane]) -> None:
        self.lanes = lanes
        self.slots = list(_round_robin(demands))
        self._taken = 0
        self._deeper, self._skipped = 1, 0
        self._over = False
        self.start: Collection[int] = ()

    @property
    def rest(self) -> list[Slot]:
        return self.slots[self._taken :]

    @property
    def room(self) -> int:
        return len(self.slots) - self._taken

    @property
    def reach(self) -> int:
        """How many jobs to look at: what others hold is in the way until they commit."""
        return self.room + 2 * self._skipped

    @property
    def depth(self) -> int:
        return min(_first_depth(len(self.lanes), self.reach) * self._deeper, self.reach)

    @property
    def is_open(self) -> bool:
        """Whether there is room left, and there may be more jobs."""
        if self._over or not self.room:
            return False
        return not (self._skipped and self.reach > _FURTHEST)

    def begin(self, start: Collection[int]) -> None:
        """Looks from now on, in the lanes of `start` from the beginning."""
        self.start = start
        self._deeper, self._skipped = 1, 0
        self._over = False

    def note(self, looked: Looked) -> None:
        reach = self.reach
        self._taken += looked.taken
        self._skipped = looked.jobs - looked.taken
        if looked.jobs < reach:
            self._over = not looked.cut_off
            self._deeper *= 2
        self.start = ()


def group_by_filter(demands: Sequence[Demand]) -> list[list[Demand]]:
    groups: dict[tuple[str, frozenset[str], frozenset[str]], list[Demand]] = defaultdict(list)
    for demand in demands:
        groups[demand.namespace, demand.tags, demand.types].append(demand)
    return list(groups.values())


def apart(groups: Sequence[Group]) -> list[list[Group]]:
    """The groups in as few rounds as they need for no lane to be in two groups of a round, and
    for nobody to be served before an earlier group that asks for some of the same lanes.
    """
    rounds: list[tuple[list[Group], set[int]]] = []
    for group in groups:
        lanes = {lane.id for lane in group.lanes}
        behind = [n for n, (_, taken) in enumerate(rounds) if not taken.isdisjoint(lanes)]
        place = behind[-1] + 1 if behind else 0
        if place == len(rounds):
            rounds.append(([], set()))
        members, taken = rounds[place]
        members.append(group)
        taken |= lanes
    return [members for members, _ in rounds]


def _first_depth(lanes: int, slots: int) -> int:
    """How deep to look into each of many lanes, so that most likely no lane is cut off before
    the slots are full: the mean, three deviations of a Poisson distribution, and a little.
    """
    if lanes <= _FEW_LANES:
        return slots
    mean = slots / lanes
    return min(ceil(mean + 3 * sqrt(mean)) + _LEAST_PER_LANE, slots)


def _round_robin(demands: Sequence[Demand]) -> Iterator[Slot]:
    """One slot of each demand in turn, so that equal streams get equal shares."""
    for turn in range(max(demand.limit for demand in demands)):
        for number, demand in enumerate(demands):
            if turn < demand.limit:
                yield number, demand
