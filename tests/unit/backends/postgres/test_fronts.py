"""What a claimer knows of where jobs wait, against lanes that are plain sets of places."""

import gc
import random
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_operator.backends.postgres.fronts import (
    END,
    START,
    Answer,
    Front,
    Fronts,
    Place,
    Range,
    beyond,
    first_of,
)
from queue_operator.backends.postgres.gate import Gate
from queue_operator.backends.postgres.groups import Group
from queue_operator.backends.postgres.lanes import Lane, LaneKey
from queue_operator.domain.job import Demand
from queue_operator.domain.ordering import Priority

_EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


def at(second: float, number: int = 0) -> Place:
    return _EPOCH + timedelta(seconds=second), number


def span(first: float, last: float) -> Range:
    return Range(at(first), at(last))


def lane(number: int = 1, type_: str = "t", tags: Sequence[str] = ()) -> Lane:
    return Lane(number, LaneKey("n", type_, "NORMAL", frozenset(tags)), Priority.NORMAL)


def fronts(gate: Gate | None = None) -> Fronts:
    return Fronts(gate or Gate())


def only(known: Fronts, number: int = 1) -> Front:
    return known.members(("n", frozenset(), frozenset()))[number]


def ranges(front: Front) -> list[Range]:
    return front.ranges(100)[0]


def test_the_first_arrival_stands_alone_so_that_nothing_behind_it_is_walked() -> None:
    known = fronts()
    known.note(1, span(10, 10), lane())
    assert ranges(only(known)) == [span(10, 10)]


def test_what_arrives_behind_the_mark_opens_the_lane_from_there_on() -> None:
    known = fronts()
    known.note(1, span(10, 10), lane())
    known.note(1, span(20, 30))
    assert ranges(only(known)) == [span(10, 10), Range(at(20), END)]


def test_what_arrives_before_the_mark_is_a_range_of_its_own() -> None:
    front = Front(lane())
    front.open_whole()
    _answer(front, [Answer(at(50))])
    front.note(span(10, 12))
    front.note(span(30, 30))
    front.note(span(40, 70))
    assert ranges(front) == [
        span(10, 12),
        span(30, 30),
        Range(at(40), (at(50)[0], -1)),
        Range(at(50), END),
    ]
    front.note(span(11, 31))
    assert ranges(front)[0] == span(10, 31)


def test_a_place_is_covered_where_a_job_that_waits_there_will_be_found() -> None:
    known = fronts()
    known.note(1, span(10, 10), lane())
    known.note(1, span(20, 30))
    seconds = (9, 10, 15, 20, 31)
    assert [known.covers(1, at(s)) for s in seconds] == [False, True, False, True, True]
    assert not known.covers(2, at(20))


def test_who_asks_few_ranges_is_told_where_the_next_one_begins() -> None:
    known = fronts()
    known.note(1, span(10, 10), lane())
    known.note(1, span(20, 20))
    known.note(1, span(5, 6))
    assert only(known).ranges(1) == ([span(5, 6)], at(10))
    assert only(known).ranges(2) == ([span(5, 6), span(10, 10)], at(20))


def test_an_empty_answer_closes_the_lane_and_nobody_asks_it_again() -> None:
    known = fronts()
    known.open_whole(lane())
    front = only(known)
    _close(known, front)
    assert front.head is None
    assert (len(known), known.members(("n", frozenset(), frozenset()))) == (0, {})


def test_the_mark_goes_no_further_than_where_the_next_job_may_come_to_lie() -> None:
    front = Front(lane())
    front.open_whole()
    tick = front.ask()
    front.leave(tick, [(Range(START, END), Answer(at(900)))], at(100))
    assert ranges(front) == [Range(at(100), END)]


@pytest.mark.parametrize("answer", [Answer(None), Answer(None, at(50)), Answer(at(60), at(50))])
def test_what_arrives_during_a_claim_is_asked_for_again(answer: Answer) -> None:
    front = Front(lane())
    front.open_whole()
    asked = ranges(front)
    tick = front.ask()
    front.note(span(20, 20))
    front.leave(tick, [(one, answer) for one in asked], END)
    assert any(one.first <= at(20) <= one.last for one in ranges(front))


def test_what_arrived_before_a_claim_is_not_asked_for_again() -> None:
    front = Front(lane())
    front.open_whole()
    other = front.ask()
    front.note(span(20, 20))
    asked = ranges(front)
    tick = front.ask()
    front.leave(tick, [(one, Answer(None)) for one in asked], END)
    assert front.head is None
    front.leave(other, [], END)
    assert front.head is None


def test_what_arrived_is_remembered_until_all_are_over_that_may_not_have_seen_it() -> None:
    front = Front(lane())
    front.open_whole()
    asked = ranges(front)
    oldest = front.ask()
    front.note(span(20, 20))
    younger = [front.ask(), front.ask()]
    front.leave(younger[0], [], END)
    front.leave(oldest, [(one, Answer(None)) for one in asked], END)
    assert front.covers(at(20))


def test_claims_that_overlap_without_end_leave_nothing_to_remember() -> None:
    front = Front(lane())
    front.open_whole()
    tick = front.ask()
    for second in range(100):
        following = front.ask()
        front.note(span(second, second))
        front.leave(tick, [], END)
        tick = following
    assert len(front._noted) == 1


def test_what_arrives_during_a_claim_is_noted_without_a_copy_of_what_was_noted_before() -> None:
    """A look at all of a lane may take a minute, in which any number arrives. And when it is over
    there is nothing left that the collector of cycles has to look at.
    """
    front = Front(lane())
    front.open_whole()
    tick = front.ask()
    front.note(span(0, 0))
    noted = front._noted
    for second in range(1, 100):
        front.note(span(second, second))
    assert front._noted is noted
    assert len(noted) == 100
    front.leave(tick, [], END)
    assert not gc.is_tracked(front._noted)


def test_who_was_asked_when_all_was_forgotten_takes_nothing_with_it() -> None:
    known = fronts()
    known.open_whole(lane())
    before = only(known)
    tick = before.ask()
    known.clear()
    known.note(1, span(5, 5), lane())
    known.leave(before, tick, [(one, Answer(None)) for one in ranges(before)], END)
    assert ranges(only(known)) == [span(5, 5)]


def test_nothing_is_forgotten_when_nobody_knows_what_a_claim_did() -> None:
    front = Front(lane())
    front.open_whole()
    tick = front.ask()
    front.leave(tick, [], END)
    assert ranges(front) == [Range(START, END)]


def test_a_front_keeps_few_ranges_and_loses_no_place() -> None:
    front = Front(lane())
    front.open_whole()
    _answer(front, [Answer(at(10_000))])
    places = random.Random(1).sample(range(9_000), 500)  # noqa: S311
    for place in places:
        front.note(span(place, place))
    assert len(front.late) <= 64
    assert all(any(one.first <= at(p) <= one.last for one in front.late) for p in places)
    assert front.late == sorted(front.late)
    gaps = zip(front.late, front.late[1:], strict=False)
    assert all(before.last < after.first for before, after in gaps)


def test_of_many_lanes_those_are_asked_whose_jobs_may_be_the_oldest() -> None:
    known = fronts()
    anything = ("n", frozenset[str](), frozenset[str]())
    for number in range(1, 500):
        known.note(number, span(1000 - number, 1000 - number), lane(number))
    found, bound = known.first(anything, 3)
    assert [front.lane.id for front in found] == [499, 498, 497]
    assert bound == at(1000 - 496)
    _close(known, found[0])
    known.note(7, span(1, 1))
    found, bound = known.first(anything, 3)
    assert [front.lane.id for front in found] == [7, 498, 497]
    assert known.first(anything, 1000) == ([*found, *known.first(anything, 1000)[0][3:]], None)
    assert first_of([*known.members(anything).values()], 3) == (found, bound)


def test_a_head_that_comes_back_is_found_by_who_asks_for_the_first() -> None:
    """A claim that began before the job came ends after others found the lane empty."""
    wanted = ("n", frozenset[str](), frozenset[str]())
    known = fronts()
    group = Group([Demand(assignee_id="w", limit=1, namespace="n")], known)
    known.note(1, span(10, 10), lane())
    group = Group([Demand(assignee_id="w", limit=1, namespace="n")], known)
    assert group.ask()
    front = only(known)
    known.note(1, span(20, 20))
    _answer(front, [Answer(None), Answer(None)])
    assert known.first(wanted, 5)[0] == []
    group.leave({}, {}, known=True)
    assert [one.lane.id for one in known.first(wanted, 5)[0]] == [1]


def test_heads_that_have_moved_are_not_remembered_for_ever() -> None:
    known = fronts()
    demand = Demand(assignee_id="w", limit=1, namespace="n")
    for n in range(5000):
        known.note(1, span(n, n), lane())
        group = Group([demand], known)
        assert group.ask()
        group.leave({}, {}, known=True)
    [found] = known._filters.values()
    assert len(found._heap) <= 1001


def test_a_demand_is_for_lanes_of_its_types_that_carry_its_tags_and_are_let() -> None:
    gate = Gate()
    known = fronts(gate)
    wanted = "n", frozenset({"a", "b"}), frozenset({"eu"})
    assert known.members(wanted) == {}
    known.open_whole(lane(1, "a", ["eu", "gpu"]))
    known.open_whole(lane(2, "a", ["us"]))
    known.open_whole(lane(3, "c", ["eu"]))
    known.open_whole(lane(4, "b", ["eu"]))
    assert set(known.members(wanted)) == {1, 4}
    gate.shut("n", "b")
    assert set(known.members(wanted)) == {1}
    known.open_whole(lane(5, "b", ["eu"]))
    assert set(known.members(wanted)) == {1}
    gate.open("n", "b")
    assert set(known.members(wanted)) == {1, 4, 5}


@given(st.lists(st.tuples(st.integers(1, 12), st.booleans())), st.sets(st.sampled_from("abc")))
def test_a_demand_that_comes_late_is_for_all_lanes_that_carry_its_tags(
    changes: list[tuple[int, bool]], demanded: set[str]
) -> None:
    known, waiting = fronts(), dict[int, set[str]]()
    for number, comes in changes:
        # The bits of the number say which of the three tags the lane has.
        tags = {tag for bit, tag in enumerate("abc") if number >> bit & 1}
        if comes:
            known.open_whole(lane(number, tags=[*tags, f"order-{number}"]))
            waiting[number] = tags
        elif waiting.pop(number, None) is not None:
            _close(known, only(known, number))
    expected = {number for number, tags in waiting.items() if demanded <= tags}
    assert set(known.members(("n", frozenset(), frozenset(demanded)))) == expected


def test_what_is_known_by_tag_goes_with_its_lanes() -> None:
    known = fronts()
    for number in range(1, 100):
        known.open_whole(lane(number, tags=["pool", f"order-{number}"]))
    for number in range(1, 100):
        _close(known, only(known, number))
    assert len(known._tagged) == 0


def test_lanes_without_a_demanded_tag_are_not_looked_at() -> None:
    known = fronts()
    for number in range(1, 1001):
        known.open_whole(lane(number, tags=["pool" if number % 100 else "rare", "all"]))
    wanted = "n", frozenset[str](), frozenset({"all", "rare"})
    assert len(known._candidates(wanted)) == 10
    assert len(known.members(wanted)) == 10


def _answer(front: Front, answers: Sequence[Answer]) -> None:
    asked = ranges(front)
    front.leave(front.ask(), zip(asked, answers, strict=True), END)


def _close(known: Fronts, front: Front) -> None:
    known.leave(front, front.ask(), [(one, Answer(None)) for one in ranges(front)], END)


class _Lane:
    """A lane as the server has it: places, and who holds them; and what arrived, as committed."""

    def __init__(self) -> None:
        self.waiting: set[Place] = set()
        self.held: dict[Place, int] = {}
        self.log: list[Range] = []
        self.taken: list[Place] = []


class _Claimer:
    """Reads arrivals when it likes, and claims in two steps, between which others go on."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.front = Front(lane())
        self.read_to = 0
        self.claim: tuple[int, list[tuple[Range, Answer]], list[Place]] | None = None

    def read(self, there: _Lane) -> None:
        for arrived in there.log[self.read_to :]:
            self.front.note(arrived)
        self.read_to = len(there.log)

    def begin(self, there: _Lane, slots: int, depth: int) -> None:
        asked, bound = self.front.ranges(3)
        tick = self.front.ask()
        answers, taken = [], list[Place]()
        for one in asked:
            seen = sorted(p for p in there.waiting if one.first <= p <= one.last)[:depth]
            mine = [p for p in seen if p not in there.held and p < (bound or END)]
            mine = mine[: slots - len(taken)]
            taken += mine
            left = [p for p in seen if p not in mine]
            last = max(mine, default=None)
            if left:
                answers.append((one, Answer(left[0])))
            elif len(seen) == depth:
                answers.append((one, Answer(beyond(seen[-1]), last)))
            else:
                answers.append((one, Answer(None, last)))
        there.held |= dict.fromkeys(taken, self.number)
        self.claim = tick, answers, taken

    def end(self, there: _Lane, *, commits: bool, is_heard: bool) -> None:
        if self.claim is None:
            return
        tick, answers, taken = self.claim
        self.claim = None
        for place in taken:
            del there.held[place]
        if commits:
            there.waiting.difference_update(taken)
            there.taken += taken
        known = answers if commits and is_heard else []
        self.front.leave(tick, known, END)


@given(st.integers(0, 2**32 - 1))
def test_no_job_stays_behind_whatever_the_order_of_things(seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311
    there, claimers = _Lane(), [_Claimer(n) for n in range(3)]
    for step in range(120):
        match chance.randrange(6):
            case 0 | 1:
                _arrive(there, chance, step)
            case 2:
                chance.choice(claimers).read(there)
            case 3 | 4:
                one = chance.choice(claimers)
                if one.claim is None:
                    one.begin(there, slots=chance.randrange(1, 6), depth=chance.randrange(1, 8))
            case _:
                commits = chance.random() < 0.8
                chance.choice(claimers).end(there, commits=commits, is_heard=chance.random() < 0.9)
    for one in claimers:
        one.end(there, commits=chance.random() < 0.5, is_heard=chance.random() < 0.5)
    for one in claimers:
        one.read(there)
        assert all(one.front.covers(place) for place in there.waiting)
    for _ in _until_rest(there, claimers[0]):
        claimers[0].begin(there, slots=5, depth=5)
        claimers[0].end(there, commits=True, is_heard=True)
    assert there.waiting == set()
    assert len(there.taken) == len(set(there.taken))
    assert claimers[0].front.head is None


def _arrive(there: _Lane, chance: random.Random, step: int) -> None:
    """Mostly later than what was there, sometimes earlier, sometimes much earlier."""
    second = max(step - chance.choice([0, 0, 0, 1, 5, 60]), 0)
    places = [at(second + n / 10, step * 10 + n) for n in range(chance.randrange(1, 4))]
    there.waiting.update(places)
    there.log.append(Range(places[0], places[-1]))


def _until_rest(there: _Lane, one: _Claimer) -> Iterator[None]:
    one.read(there)
    for _ in range(1000):
        if one.front.head is None:
            return
        yield
