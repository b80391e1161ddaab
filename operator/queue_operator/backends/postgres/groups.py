"""Streams that ask for the same share the jobs that are found for them; how deep to look for
those is decided here.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from math import ceil, sqrt
from typing import Final, NamedTuple

from queue_operator.backends.postgres.fronts import (
    END,
    FEW,
    Answer,
    Front,
    Fronts,
    Place,
    Range,
    Wanted,
    first_of,
)
from queue_operator.domain.job import Demand

# Up to this many ranges, every range is looked at as deep as the claim is long.
_FEW_RANGES: Final = 4
_LEAST_PER_RANGE: Final = 2
# A claim that finds so many jobs held by others comes back short rather than look at more.
_FURTHEST: Final = 10_000
_RANGES_PER_LANE: Final = 8
# Whoever looks so often and neither takes a job nor learns that there is none gives up.
_MOST_FRUITLESS: Final = 20
# So many times as many lanes as at first are asked at most.
_WIDEST: Final = 32
# Of so many lanes those that two groups share are found one by one.
_COMPARED: Final = 1000

Slot = tuple[int, Demand]
"""Room for one job: which of the demands it belongs to, and that demand."""


class Looked(NamedTuple):
    """How many jobs were looked at, whether there may be more, and how many were taken."""

    jobs: int
    cut_off: bool
    taken: int


class Asked(NamedTuple):
    """A range that a claim asks, the front it is of, and what that wants to have back."""

    front: Front
    range: Range
    tick: int


class Group:
    """Streams that ask for the same, and how far a claim for them has come."""

    def __init__(self, demands: Sequence[Demand], fronts: Fronts) -> None:
        first = demands[0]
        self.wanted: Wanted = (first.namespace, first.types, first.tags)
        self.slots = list(_round_robin(demands))
        self._fronts = fronts
        members = fronts.members(self.wanted)
        # Lanes that open while the claim goes on are for the next one, unless there are many.
        self._members = dict(members) if len(members) <= _COMPARED else None
        self.asked: list[Asked] = []
        self.bound: Place = END
        self._taken = 0
        self._deeper, self._wider, self._skipped, self._fruitless = 1, 1, 0, 0
        self._over = False

    @property
    def members(self) -> Mapping[int, Front] | None:
        """By lane, all that may hold a job for it; None where they are very many."""
        return self._members

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
        return min(_first_depth(len(self.asked), self.reach) * self._deeper, self.reach)

    @property
    def is_open(self) -> bool:
        """Whether there is room left, and there may be more jobs."""
        if self._over or not self.room:
            return False
        return not (self._skipped and self.reach > _FURTHEST)

    def unknown(self) -> list[Front]:
        """The lanes in which jobs may wait anywhere, if they are more than a claim asks: nothing
        can be taken before it is known where their first jobs are.
        """
        members = self._members
        if members is None:
            # An unknown one is always among the first.
            first, _ = self._fronts.first(self.wanted, 1)
            if not any(front.is_unknown for front in first):
                return []
            members = self._fronts.members(self.wanted)
        most = max(FEW, self.reach)
        if len(members) <= most:
            return []
        found = [front for front in members.values() if front.is_unknown]
        return found if len(found) > most else []

    def ask(self) -> bool:
        """Chooses where to look next; False if nothing waits anywhere."""
        fronts, bound = self._first(max(FEW * self._wider, self.reach))
        bounds = [bound or END]
        self.asked = []
        for front in fronts:
            ranges, next_one = front.ranges(_RANGES_PER_LANE)
            tick = front.ask()
            front.is_wanted = True
            self.asked += [Asked(front, one, tick) for one in ranges]
            bounds.append(next_one or END)
        self.bound = min(bounds)
        self._over = not self.asked
        return not self._over

    def _first(self, most: int) -> tuple[list[Front], Place | None]:
        if self._members is None:
            return self._fronts.first(self.wanted, most)
        return first_of([*self._members.values()], most)

    def leave(
        self, answers: Mapping[int, Answer], limits: Mapping[str, Place], *, known: bool
    ) -> bool:
        """The claim of what was asked is over; whether any head moved. `answers` are those of
        ranges by their place among the asked, nothing waits in the others; not `known`, nobody
        knows. `limits` is where the next job of a priority may come to lie.
        """
        by_front: dict[int, list[tuple[int, Asked]]] = defaultdict(list)
        for n, one in enumerate(self.asked):
            by_front[id(one.front)].append((n, one))
        moved = False
        nothing = Answer(None)
        for members in by_front.values():
            front = members[0][1].front
            told = [(one.range, answers.get(n, nothing)) for n, one in members] if known else []
            limit = limits.get(front.lane.key.priority, END)
            moved = self._fronts.leave(front, members[0][1].tick, told, limit) or moved
        self.asked = []
        return moved

    def note(self, looked: Looked, *, moved: bool) -> None:
        reach = self.reach
        self._taken += looked.taken
        self._skipped = looked.jobs - looked.taken
        self._fruitless = 0 if moved or looked.taken else self._fruitless + 1
        if not looked.jobs:
            # In none of so many lanes a job waits any more: others took them.
            self._wider = min(2 * self._wider, _WIDEST)
        if looked.jobs < reach:
            self._over = not looked.cut_off and self.bound == END
            self._deeper *= 2
        self._over = self._over or self._fruitless > _MOST_FRUITLESS


def group_by_filter(demands: Sequence[Demand]) -> list[list[Demand]]:
    groups: dict[tuple[str, frozenset[str], frozenset[str]], list[Demand]] = defaultdict(list)
    for demand in demands:
        groups[demand.namespace, demand.tags, demand.types].append(demand)
    return list(groups.values())


class _Round:
    """Groups of which no two ask for the same lane."""

    def __init__(self) -> None:
        self.groups: list[Group] = []
        self._lanes: set[int] = set()
        self._wide: list[Group] = []

    def add(self, group: Group) -> None:
        self.groups.append(group)
        if group.members is None:
            self._wide.append(group)
        else:
            self._lanes |= group.members.keys()

    def meets(self, group: Group) -> bool:
        """Whether one of its lanes may be asked for here."""
        if group.members is None:
            return any(_may_meet(group, other) for other in self.groups)
        if not self._lanes.isdisjoint(group.members):
            return True
        return any(_may_meet(group, other) for other in self._wide)


def apart(groups: Sequence[Group]) -> list[list[Group]]:
    """The groups in as few rounds as they need for no lane to be in two groups of a round, and
    for nobody to be served before an earlier group that asks for some of the same lanes.
    """
    rounds: list[_Round] = []
    for group in groups:
        behind = [n for n, one in enumerate(rounds) if one.meets(group)]
        place = behind[-1] + 1 if behind else 0
        if place == len(rounds):
            rounds.append(_Round())
        rounds[place].add(group)
    return [one.groups for one in rounds]


def _may_meet(one: Group, other: Group) -> bool:
    """Whether there can be a lane that both ask for: a job may carry the tags of both."""
    (space, types, _), (other_space, other_types, _) = one.wanted, other.wanted
    apart_by_type = types and other_types and types.isdisjoint(other_types)
    return space == other_space and not apart_by_type


def _first_depth(ranges: int, slots: int) -> int:
    """How deep to look into each of many ranges, so that most likely none is cut off before
    the slots are full: the mean, three deviations of a Poisson distribution, and a little.
    """
    if ranges <= _FEW_RANGES:
        return slots
    mean = slots / ranges
    return min(ceil(mean + 3 * sqrt(mean)) + _LEAST_PER_RANGE, slots)


def _round_robin(demands: Sequence[Demand]) -> Iterator[Slot]:
    """One slot of each demand in turn, so that equal streams get equal shares."""
    for turn in range(max(demand.limit for demand in demands)):
        for number, demand in enumerate(demands):
            if turn < demand.limit:
                yield number, demand
