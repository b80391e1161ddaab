"""Where waiting jobs may be: what is known of the lanes that may hold any. No input or output.

A lane without a front holds nothing, as far as anybody has said. What makes jobs claimable says so
(`arrivals`), and a claim says what it left. So a claim asks only lanes that may hold a job, and
only from there on: it never walks the dead entries of jobs that were taken before, of which an old
snapshot can keep any number.
"""

import heapq
from bisect import bisect_left
from collections import OrderedDict, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import cache, partial
from itertools import islice
from typing import Final, NamedTuple

from queue_operator.backends.postgres.gate import Gate
from queue_operator.backends.postgres.lanes import Lane, LaneKey
from queue_operator.domain.tags import matches

Place = tuple[datetime, int]
"""A place in a lane's order: order time and job number."""

START: Final[Place] = (datetime(1, 1, 1, tzinfo=UTC), 0)
END: Final[Place] = (datetime(9999, 12, 31, tzinfo=UTC), 2**63 - 1)
_MOST_RANGES: Final = 64
"""A front with more ranges than this makes one of each two neighbours."""
_MOST_FILTERS: Final = 1000
_MOST_STALE: Final = 1000
"""Heads that have moved, and are remembered where they were."""
FEW: Final = 200
"""So many lanes are asked in one statement in any case."""

Wanted = tuple[str, frozenset[str], frozenset[str]]
"""Namespace, types (none: all) and demanded tags."""


class Range(NamedTuple):
    """Places from the first to the last, both included."""

    first: Place
    last: Place


class Answer(NamedTuple):
    """What a claim found in a range: nothing waits in it before `upto` any more, which is None
    where nothing does in all of it. `taken` is the last place that was taken.
    """

    upto: Place | None
    taken: Place | None = None


def beyond(place: Place) -> Place:
    """The next place in the order."""
    return place[0], place[1] + 1


def _before(place: Place) -> Place:
    return place[0], place[1] - 1


class Front:
    """Where jobs of one lane may wait: in its `late` ranges, which are apart and in order, all
    of them before the mark, and, if it `is_open`, anywhere from the mark on.
    """

    __slots__ = ("_asked", "_noted", "_tick", "is_open", "is_wanted", "lane", "late", "mark")

    def __init__(self, lane: Lane) -> None:
        self.lane = lane
        self.mark = START
        self.is_open = False
        # Whether somebody asked for its jobs of late.
        self.is_wanted = False
        self.late: list[Range] = []
        # What arrives while a claim is under way may or may not be seen by it. By number, when
        # each that is under way began. Nearly all fronts have neither: no lists for the collector
        # of cycles to look at. What arrives is a list while there is any, which may be much.
        self._asked: tuple[int, ...] = ()
        self._tick = 0
        self._noted: list[tuple[int, Range]] | tuple[()] = ()

    @property
    def head(self) -> Place | None:
        """No job waits before it; None: none waits at all."""
        if self.late:
            return self.late[0].first
        return self.mark if self.is_open else None

    @property
    def is_unknown(self) -> bool:
        """Whether jobs may wait anywhere."""
        return self.is_open and self.mark == START

    @property
    def is_needed(self) -> bool:
        """Whether there is anything to remember."""
        return bool(self.late or self.is_open or self._asked)

    def covers(self, place: Place) -> bool:
        """Whether a job that waits there will be found."""
        if self.is_open and place >= self.mark:
            return True
        return any(late.first <= place <= late.last for late in self.late)

    def open_whole(self) -> None:
        """Jobs may wait anywhere."""
        self.mark, self.is_open = START, True
        self.late.clear()

    def note(self, arrived: Range) -> None:
        """Jobs came to wait in a range."""
        if self._asked:
            self._tick += 1
            if not self._noted:
                self._noted = []
            self._noted.append((self._tick, arrived))
        self._put(arrived)

    def ranges(self, most: int) -> tuple[list[Range], Place | None]:
        """The first ranges in which jobs may wait, and where the next one begins."""
        ranges = [*self.late[:most]]
        if len(self.late) > most:
            return ranges, self.late[most].first
        if self.is_open:
            if len(ranges) == most:
                return ranges, self.mark
            ranges.append(Range(self.mark, END))
        return ranges, None

    def all_ranges(self) -> list[Range]:
        """Where jobs may wait."""
        return self.ranges(len(self.late) + 1)[0]

    def ask(self) -> int:
        """A claim begins; gives what it has to bring back."""
        self._asked += (self._tick,)
        return self._tick

    def leave(self, asked_at: int, answers: Iterable[tuple[Range, Answer]], limit: Place) -> None:
        """The claim is over. Without answers nothing is known of what it did. The mark does not
        go beyond `limit`, where the next job may be submitted.
        """
        place = self._asked.index(asked_at)
        self._asked = self._asked[:place] + self._asked[place + 1 :]
        changed = False
        for asked, answer in answers:
            self._clear(asked, answer, limit)
            changed = True
        if changed:
            for tick, arrived in self._noted:
                if tick > asked_at:
                    self._put(arrived)
        oldest = min(self._asked, default=self._tick)
        self._noted = [one for one in self._noted if one[0] > oldest] or ()

    def _clear(self, asked: Range, answer: Answer, limit: Place) -> None:
        end = beyond(asked.last) if answer.upto is None else answer.upto
        self.late = [part for late in self.late for part in _without(late, asked.first, end)]
        if not asked.first <= self.mark < end:
            return
        if answer.upto is None and asked.last == END:
            self.is_open = False
            end = self.mark if answer.taken is None else beyond(answer.taken)
        self.mark = max(self.mark, min(end, limit))

    def _put(self, arrived: Range) -> None:
        if not self.is_open and arrived.first >= self.mark:
            # Nothing else waits from the mark on: what lies between is dead.
            self.mark = arrived.first
        if arrived.last >= self.mark:
            self.is_open = True
        if arrived.first < self.mark:
            self._put_late(Range(arrived.first, min(arrived.last, _before(self.mark))))

    def _put_late(self, arrived: Range) -> None:
        first, last = arrived
        start = bisect_left(self.late, first, key=lambda one: one.last)
        end = start
        while end < len(self.late) and self.late[end].first <= last:
            first, last = min(first, self.late[end].first), max(last, self.late[end].last)
            end += 1
        self.late[start:end] = [Range(first, last)]
        if len(self.late) > _MOST_RANGES:
            late = self.late
            self.late = [
                Range(late[n].first, late[min(n + 1, len(late) - 1)].last)
                for n in range(0, len(late), 2)
            ]


def _without(late: Range, first: Place, end: Place) -> list[Range]:
    """What is left of a range without the places from `first` on, up to but not including
    `end`.
    """
    if late.last < first or late.first >= end:
        return [late]
    left = []
    if late.first < first:
        left.append(Range(late.first, _before(first)))
    if late.last >= end:
        left.append(Range(end, late.last))
    return left


class _Filter:
    """The fronts whose jobs satisfy a demand, the one that may hold the oldest job first."""

    def __init__(self, wanted: Wanted, fronts: Iterable[Front]) -> None:
        self.wanted = wanted
        self.members = {front.lane.id: front for front in fronts}
        self._heap: list[tuple[Place, int]] = []
        self._sort()

    def _sort(self) -> None:
        self._heap = [(head, n) for n, front in self.members.items() if (head := front.head)]
        # They come nearly in order, for which this is quicker than `heapify`.
        self._heap.sort()

    def add(self, front: Front) -> None:
        self.members[front.lane.id] = front
        self.moved(front)

    def moved(self, front: Front) -> None:
        """Its head may lie before where it was. Where it lies behind, that is found in time."""
        if head := front.head:
            heapq.heappush(self._heap, (head, front.lane.id))
        # Who asks few lanes never takes any out.
        if len(self._heap) > 2 * len(self.members) + _MOST_STALE:
            self._sort()

    def first(self, most: int) -> tuple[list[Front], Place | None]:
        """The fronts with the first heads, and the head of the next one."""
        found: dict[int, tuple[Place, int]] = {}
        bound = None
        while self._heap:
            place, lane_id = entry = heapq.heappop(self._heap)
            front = self.members.get(lane_id)
            if front is None or lane_id in found or not (head := front.head):
                continue
            if head != place:
                # Whoever made it an earlier one has put that in.
                if head > place:
                    heapq.heappush(self._heap, (head, lane_id))
                continue
            if len(found) == most:
                bound = place
                heapq.heappush(self._heap, entry)
                break
            found[lane_id] = entry
        for entry in found.values():
            heapq.heappush(self._heap, entry)
        return [self.members[lane_id] for lane_id in found], bound


class _Tagged:
    """Fronts by the tags of their lanes. Most tags may be of one lane alone, an order's or a
    customer's: these have no list of their own.
    """

    def __init__(self) -> None:
        self._alone: dict[str, Front] = {}
        self._shared: dict[str, dict[int, Front]] = {}

    def __len__(self) -> int:
        """How many tags are known."""
        return len(self._alone) + len(self._shared)

    def clear(self) -> None:
        self._alone.clear()
        self._shared.clear()

    def add(self, front: Front) -> None:
        for tag in front.lane.key.tags:
            if tag in self._shared:
                self._shared[tag][front.lane.id] = front
            elif (other := self._alone.setdefault(tag, front)) is not front:
                del self._alone[tag]
                self._shared[tag] = {other.lane.id: other, front.lane.id: front}

    def drop(self, front: Front) -> None:
        for tag in front.lane.key.tags:
            if self._alone.get(tag) is front:
                del self._alone[tag]
            elif shared := self._shared.get(tag):
                shared.pop(front.lane.id, None)
                if not shared:
                    del self._shared[tag]

    def of(self, tag: str) -> Collection[Front]:
        if shared := self._shared.get(tag):
            return shared.values()
        return [self._alone[tag]] if tag in self._alone else []


class Fronts:
    """All lanes that may hold a waiting job. Nobody asks those that the gate does not let."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        # How many there were when they were last looked into, or all were read.
        self.looked_into = 0
        self._grouped_at = gate.version
        self._by_lane: dict[int, Front] = {}
        self._tagged = _Tagged()
        self._filters: OrderedDict[Wanted, _Filter] = OrderedDict()
        # By namespace and one of the tags that are demanded: a lane without it is none of theirs.
        self._by_tag: dict[tuple[str, str], dict[Wanted, _Filter]] = defaultdict(dict)

    def __len__(self) -> int:
        return len(self._by_lane)

    def clear(self) -> None:
        """Nothing is known any more."""
        self._by_lane.clear()
        self._tagged.clear()
        self._regroup()

    def _regroup(self) -> None:
        self._grouped_at = self._gate.version
        self._filters.clear()
        self._by_tag.clear()

    def next_unwanted(self, most: int) -> list[Front]:
        """Goes on, round and round, by so many fronts; gives those that nobody asked for since they
        were last passed.
        """
        passed = list(islice(self._by_lane.items(), most))
        for lane_id, front in passed:
            del self._by_lane[lane_id]
            self._by_lane[lane_id] = front
        found = [front for _, front in passed if not front.is_wanted]
        for _, front in passed:
            front.is_wanted = False
        return found

    def knows(self, lane_id: int) -> bool:
        return lane_id in self._by_lane

    def head(self, lane_id: int) -> Place | None:
        """No job of the lane waits before it; None: none waits at all."""
        front = self._by_lane.get(lane_id)
        return front.head if front is not None else None

    def covers(self, lane_id: int, place: Place) -> bool:
        """Whether a job of the lane that waits there will be found."""
        front = self._by_lane.get(lane_id)
        return front is not None and front.covers(place)

    def open_whole(self, lane: Lane) -> None:
        """Jobs may wait anywhere in the lane."""
        front, is_new = self._front(lane)
        front.open_whole()
        self._tell(front, is_new)

    def note(self, lane_id: int, arrived: Range, lane: Lane | None = None) -> None:
        """Jobs came to wait in a lane; `lane` may be left out if `knows` knows it."""
        known = self._by_lane.get(lane_id)
        if known is not None:
            before = known.head
            known.note(arrived)
            if known.head != before:
                self._tell(known, False)
            return
        if lane is None:
            raise KeyError(lane_id)
        front, is_new = self._front(lane)
        # Nothing else waits there: the range stands alone, so that nothing behind it is walked.
        front.mark = beyond(arrived.last)
        front.note(arrived)
        self._tell(front, is_new)

    def _front(self, lane: Lane) -> tuple[Front, bool]:
        front = self._by_lane.get(lane.id)
        if front is not None:
            return front, False
        front = self._by_lane[lane.id] = Front(lane)
        self._tagged.add(front)
        return front, True

    def _tell(self, front: Front, is_new: bool) -> None:
        for one in self._near(front.lane.key):
            if not is_new:
                if front.lane.id in one.members:
                    one.moved(front)
            elif self._is_for(one.wanted, front.lane.key):
                one.add(front)

    def _near(self, key: LaneKey) -> Iterator[_Filter]:
        """All filters that such a lane may be for."""
        for tag in ("", *key.tags):
            if found := self._by_tag.get((key.namespace, tag)):
                yield from found.values()

    def leave(
        self, front: Front, asked_at: int, answers: Iterable[tuple[Range, Answer]], limit: Place
    ) -> bool:
        """As `Front.leave`, and forgets it if nothing waits there; whether its head moved."""
        before = front.head
        front.leave(asked_at, answers, limit)
        # One that was asked when all was forgotten has no place here; another may have it.
        if self._by_lane.get(front.lane.id) is front:
            if (head := front.head) and (before is None or head < before):
                self._tell(front, False)
            if not front.is_needed:
                self._drop(front)
        return front.head != before

    def _drop(self, front: Front) -> None:
        del self._by_lane[front.lane.id]
        self._tagged.drop(front)
        for one in self._near(front.lane.key):
            one.members.pop(front.lane.id, None)

    def members(self, wanted: Wanted) -> dict[int, Front]:
        """By lane, the fronts whose jobs satisfy a demand and may be claimed."""
        return self._filter(wanted).members

    def first(self, wanted: Wanted, most: int) -> tuple[list[Front], Place | None]:
        """Of those `most` with the first heads, and the head of the next one."""
        return self._filter(wanted).first(most)

    def _filter(self, wanted: Wanted) -> _Filter:
        if self._grouped_at != self._gate.version:
            self._regroup()
        found = self._filters.get(wanted)
        if found is None:
            while len(self._filters) >= _MOST_FILTERS:
                oldest, _ = self._filters.popitem(last=False)
                place = _place_of(oldest)
                self._by_tag[place].pop(oldest, None)
                if not self._by_tag[place]:
                    del self._by_tag[place]
            found = self._filters[wanted] = _Filter(wanted, self._fitting(wanted))
            self._by_tag[_place_of(wanted)][wanted] = found
        else:
            self._filters.move_to_end(wanted)
        return found

    def _fitting(self, wanted: Wanted) -> Iterator[Front]:
        """Of very many: as `_is_for`, at a third of its cost."""
        namespace, types, tags = wanted
        lets = cache(partial(self._gate.lets, namespace))
        for front in self._candidates(wanted):
            key = front.lane.key
            if (
                key.namespace == namespace
                and (not types or key.type in types)
                and tags <= key.tags
                and lets(key.type)
            ):
                yield front

    def _candidates(self, wanted: Wanted) -> Collection[Front]:
        """All that a demand may be about, and as few others as one of its tags leaves."""
        _, _, tags = wanted
        return min((self._tagged.of(tag) for tag in tags), key=len, default=self._by_lane.values())

    def _is_for(self, wanted: Wanted, key: LaneKey) -> bool:
        namespace, types, tags = wanted
        return (
            key.namespace == namespace
            and (not types or key.type in types)
            and matches(tags, key.tags)
            and self._gate.lets(key.namespace, key.type)
        )


def _place_of(wanted: Wanted) -> tuple[str, str]:
    namespace, _, tags = wanted
    return namespace, min(tags, default="")


def first_of(fronts: Sequence[Front], most: int) -> tuple[list[Front], Place | None]:
    """Of some fronts those with the first heads, and the head of the next one."""
    heads = [(head, n) for n, front in enumerate(fronts) if (head := front.head)]
    heads.sort()
    bound = heads[most][0] if len(heads) > most else None
    return [fronts[n] for _, n in heads[:most]], bound
