"""What one claim asks for."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from queue_operator.domain.job import TypeDefaults
from queue_operator.queue.capacity import Slots
from queue_operator.queue.demand import (
    STREAMS_PER_CLAIM,
    Filter,
    Group,
    defaults_of,
    groups_of,
    plan,
    type_limits,
)
from queue_operator.queue.protocol import HandlerType, StreamSpec


@dataclass
class Applicant:
    """A stream as a plan sees it."""

    spec: StreamSpec
    busy: int = 0
    accepting: bool = True
    slots: Slots = field(init=False)
    groups: tuple[Group, ...] = field(init=False)
    defaults: Mapping[str, TypeDefaults] = field(init=False)

    def __post_init__(self) -> None:
        self.slots = Slots(self.spec.capacity, type_limits(self.spec))
        self.groups = groups_of(self.spec)
        self.defaults = defaults_of(self.spec)
        for number in range(self.busy):
            self.slots.take(("default", f"{self.spec.assignee_id}-{number}"), "", "x", number, 0.0)


def applicant(name: str, capacity: int = 10, busy: int = 0, **spec: object) -> Applicant:
    return Applicant(StreamSpec(assignee_id=name, capacity=capacity, **spec), busy)  # type: ignore[arg-type]


def hungry(*applicants: Applicant) -> set[Filter]:
    return {group.filter for each in applicants for group in each.groups}


def limits(applicants: list[Applicant], batch: int = 100) -> dict[str, int]:
    totals: Counter[str] = Counter()
    for demand in plan(applicants, hungry(*applicants), batch).demands:
        totals[demand.assignee_id] += demand.limit
    return dict(totals)


def test_each_stream_asks_for_its_free_slots() -> None:
    assert limits([applicant("a", 10, 4), applicant("b", 3, 3), applicant("c", 2)]) == {
        "a": 6,
        "c": 2,
    }


def test_a_batch_too_small_for_all_is_shared_evenly() -> None:
    assert limits([applicant(name, 100) for name in "abc"], batch=30) == dict.fromkeys("abc", 10)
    assert limits([applicant("a", 2), applicant("b", 100)], batch=30) == {"a": 2, "b": 28}


def test_of_very_many_streams_the_later_ones_are_put_off() -> None:
    streams = [applicant(str(number)) for number in range(STREAMS_PER_CLAIM + 1)]
    planned = plan(streams, hungry(*streams), 500)
    assert planned.put_off
    assert list(planned.streams) == [str(number) for number in range(STREAMS_PER_CLAIM)]
    assert not plan(streams[1:], hungry(*streams), 500).put_off


def test_only_hungry_filters_are_asked_for() -> None:
    red, blue = applicant("a", tags=frozenset({"red"})), applicant("b", tags=frozenset({"blue"}))
    planned = plan([red, blue], hungry(red), 100)
    assert [demand.assignee_id for demand in planned.demands] == ["a"]
    assert planned.asked == {red.groups[0].filter: 10}


def test_a_stream_that_takes_no_more_is_left_out() -> None:
    closed = applicant("a")
    closed.accepting = False
    assert limits([closed, applicant("b", 1)]) == {"b": 1}


def test_streams_of_one_assignee_take_turns() -> None:
    first, second = applicant("same", 3), applicant("same", 4)
    planned = plan([first, second], hungry(first), 100)
    assert planned.put_off
    assert planned.streams == {"same": first}
    assert sum(demand.limit for demand in planned.demands) == 3


def test_streams_whose_registrations_disagree_take_turns() -> None:
    def registering(name: str, attempts: int) -> Applicant:
        handler = HandlerType(type="mail", defaults=TypeDefaults(max_attempts=attempts))
        return applicant(name, types=(handler,))

    streams = [registering("a", 3), registering("b", 5), registering("c", 3)]
    planned = plan(streams, hungry(*streams), 100)
    assert set(planned.streams) == {"a", "c"}
    assert planned.put_off
    assert planned.defaults == {"mail": TypeDefaults(max_attempts=3)}


def test_a_limit_at_or_above_the_capacity_makes_no_group_of_its_own() -> None:
    types = (HandlerType(type="mail", concurrency=10), HandlerType(type="video"))
    groups = groups_of(StreamSpec(assignee_id="a", capacity=10, types=types))
    assert [group.filter.types for group in groups] == [frozenset({"mail", "video"})]


@given(
    capacity=st.integers(1, 20),
    batch=st.integers(1, 40),
    running=st.lists(st.sampled_from(["a", "b", "c"]), max_size=20),
    concurrency=st.dictionaries(st.sampled_from(["a", "b"]), st.integers(1, 20)),
)
def test_no_limit_is_ever_exceeded(
    capacity: int, batch: int, running: list[str], concurrency: dict[str, int]
) -> None:
    types = tuple(HandlerType(type=name, concurrency=concurrency.get(name)) for name in "abc")
    stream = applicant("w", capacity, types=types)
    for number, name in enumerate(running):
        if stream.slots.free_for(name):
            stream.slots.take(("default", str(number)), "", name, number, 0.0)
    planned = plan([stream], hungry(stream), batch)
    assert sum(demand.limit for demand in planned.demands) <= min(stream.slots.free, batch)
    for demand in planned.demands:
        for name in demand.types:
            assert demand.limit <= stream.slots.free_for(name)
    if any(stream.slots.free_for(name) for name in "abc"):
        assert planned.demands


def test_a_filter_accepts_what_the_claim_would_take() -> None:
    wants = Filter("default", frozenset({"eu"}), frozenset({"mail"}))
    assert wants.accepts("default", "mail", frozenset({"eu", "fast"}))
    assert not wants.accepts("default", "mail", frozenset({"fast"}))
    assert not wants.accepts("default", "video", frozenset({"eu"}))
    assert not wants.accepts("other", "mail", frozenset({"eu"}))
