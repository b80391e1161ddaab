"""Slots against a model made of two plain sets, on random histories."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from queue_operator.queue.capacity import UNKNOWN_TYPE, JobKey, Slots, share

CAPACITY = 5
LIMITS = {"mail": 2, "video": 1}
TYPES = st.sampled_from(["mail", "video", "other"])
KEYS = st.integers(0, 8).map(lambda number: ("default", f"job-{number}"))


class SlotHistory(RuleBasedStateMachine):
    """`stored` and `reported` are the two reasons why a job takes a slot."""

    def __init__(self) -> None:
        super().__init__()
        self.slots = Slots(CAPACITY, LIMITS)
        self.stored: dict[JobKey, str] = {}
        self.reported: set[JobKey] = set()
        self.types: dict[JobKey, str] = {}
        self.orders = 0

    @property
    def taken(self) -> set[JobKey]:
        return set(self.stored) | self.reported

    @rule(key=KEYS, job_type=TYPES)
    def claim(self, key: JobKey, job_type: str) -> None:
        job_type = self.types.get(key, job_type) if key in self.taken else job_type
        if key in self.stored or (key not in self.taken and not self.slots.free_for(job_type)):
            return
        self.orders += 1
        self.slots.take(key, f"token-{self.orders}", job_type, self.orders, 0.0)
        self.stored[key] = f"token-{self.orders}"
        self.types[key] = job_type

    @precondition(lambda self: self.stored)
    @rule(data=st.data())
    def outcome(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.stored)))
        assert self.slots.settle(key, self.stored.pop(key))
        self.reported.discard(key)

    @precondition(lambda self: self.stored)
    @rule(data=st.data())
    def stale_outcome(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.stored)))
        assert not self.slots.settle(key, "a token of long ago")

    @precondition(lambda self: self.stored)
    @rule(data=st.data())
    def lease_lost(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.stored)))
        freed = self.slots.lose(key)
        del self.stored[key]
        assert freed == (key not in self.reported)

    @precondition(lambda self: self.stored)
    @rule(data=st.data())
    def news_older_than_the_claim(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.stored)))
        slot = self.slots.get(key)
        assert slot is not None
        assert not self.slots.lose(key, before=slot.order - 1)

    @rule(keys=st.sets(KEYS))
    def heartbeat(self, keys: set[JobKey]) -> None:
        self.slots.report(keys)
        self.reported = keys & self.taken

    @rule(key=KEYS, stored=st.booleans())
    def adopt(self, key: JobKey, stored: bool) -> None:
        if key in self.taken or len(self.taken) >= CAPACITY:
            return
        self.orders += 1
        self.slots.adopt(key, f"token-{self.orders}", UNKNOWN_TYPE, self.orders, 0.0, stored=stored)
        if stored:
            self.stored[key] = f"token-{self.orders}"
        self.reported.add(key)
        self.types[key] = UNKNOWN_TYPE

    @invariant()
    def every_slot_is_accounted_for(self) -> None:
        assert {key for key, _ in self.slots.items()} == self.taken
        assert self.slots.free + len(self.taken) == CAPACITY

    @invariant()
    def no_type_exceeds_its_limit(self) -> None:
        used = Counter(self.types[key] for key in self.taken)
        for name, limit in LIMITS.items():
            assert used[name] <= limit
            expected = min(self.slots.free, limit - used[name] - used[UNKNOWN_TYPE])
            assert self.slots.free_for(name) == max(expected, 0)


TestSlotHistory = SlotHistory.TestCase


def test_a_doubted_slot_stays_until_the_store_was_asked() -> None:
    slots = Slots(1)
    slots.take(("default", "a"), "t", "mail", 1, 10.0)
    slots.report([("default", "a")])
    slots.doubt(("default", "a"), "t")
    assert slots.free == 0
    assert slots.compare({("default", "a"): "t"}, 1) == []
    assert slots.free == 0
    assert slots.compare({}, 1) == [("default", "a")]
    assert slots.lose(("default", "a"))
    assert slots.free == 1


def test_what_the_store_counts_again_is_counted() -> None:
    slots = Slots(1)
    slots.take(("default", "a"), "t", "mail", 1, 0.0)
    slots.report([("default", "a")])
    slots.lose(("default", "a"), "t")
    assert slots.compare({("default", "a"): "t"}, 1) == []
    slots.report([])
    assert slots.free == 0


def test_a_slot_taken_since_the_store_was_asked_is_not_compared() -> None:
    slots = Slots(3)
    slots.take(("default", "a"), "old", "mail", 1, 0.0)
    slots.take(("default", "b"), "other", "mail", 2, 0.0)
    slots.take(("default", "c"), "new", "mail", 3, 0.0)
    assert slots.compare({("default", "b"): "of another attempt"}, 2) == [
        ("default", "a"),
        ("default", "b"),
    ]


def test_a_job_assigned_again_to_the_worker_that_still_runs_it_takes_one_slot() -> None:
    slots = Slots(2)
    slots.take(("default", "a"), "first", "mail", 1, 0.0)
    slots.report([("default", "a")])
    slots.lose(("default", "a"), "first")
    slots.take(("default", "a"), "second", "mail", 2, 0.0)
    assert slots.busy == 1
    assert slots.settle(("default", "a"), "second")
    assert slots.free == 2


@given(st.integers(0, 60), st.lists(st.integers(0, 20), max_size=8))
def test_shares_use_all_there_is_and_favour_nobody(total: int, wants: list[int]) -> None:
    shares = share(total, wants)
    assert sum(shares) == min(total, sum(wants))
    assert all(0 <= given <= want for given, want in zip(shares, wants, strict=True))
    unmet = [given for given, want in zip(shares, wants, strict=True) if given < want]
    if unmet:
        assert max(shares) - min(unmet) <= 1


def test_what_does_not_divide_goes_to_the_first_whatever_they_want() -> None:
    assert share(2, [2, 1, 1]) == [1, 1, 0]
    assert share(5, [9, 1, 9]) == [2, 1, 2]
