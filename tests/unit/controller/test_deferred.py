"""The lines of those that wait for room, with the time given."""

from queue_operator.controller.deferred import (
    LEAST_PAUSE_S,
    MOST_AT_ONCE,
    MOST_PAUSE_S,
    Deferred,
    DeferredJob,
)
from queue_operator.domain.errors import QuotaExceeded

START = 100.0
FULL = QuotaExceeded("pending_jobs", 5, 5, LEAST_PAUSE_S)


def job(uid: str, namespace: str = "team", generation: int = 1, created: str = "") -> DeferredJob:
    return DeferredJob(uid, namespace, f"name-{uid}", generation, created)


def uids(deferred: Deferred, namespace: str = "team", room: int | None = None) -> list[str]:
    return [one.uid for one in deferred.first(namespace, room)]


def test_whoever_came_first_goes_first_and_keeps_the_place() -> None:
    deferred = Deferred()
    for uid in "abc":
        assert deferred.put(job(uid), FULL, START)
    assert not deferred.put(job("a"), FULL, START)
    # Another spec is news, but no new place.
    assert deferred.put(job("a", generation=2), FULL, START)
    assert uids(deferred) == ["a"]
    deferred.drop("a")
    assert uids(deferred) == ["b"]


def test_the_oldest_goes_first_in_whatever_order_they_are_seen() -> None:
    deferred = Deferred()
    for uid, created in (("a", "3"), ("b", "1"), ("c", "2"), ("d", "2")):
        deferred.put(job(uid, created=created), FULL, START)
    order = []
    while len(deferred):
        [first] = uids(deferred)
        order.append(first)
        deferred.drop(first)
    assert order == ["b", "c", "d", "a"]


def test_what_goes_to_the_end_stays_behind_the_others_but_ahead_of_later_ones() -> None:
    deferred = Deferred()
    for uid, created in (("a", "1"), ("b", "2"), ("c", "3")):
        deferred.put(job(uid, created=created), FULL, START)
    deferred.move_to_end(job("a", created="1"))
    deferred.move_to_end(job("missing"))
    assert not deferred.put(job("a", created="1"), FULL, START)
    deferred.put(job("new", created="4"), FULL, START)
    # One that comes late has the line sorted anew.
    deferred.put(job("late", created="0"), FULL, START)
    order = []
    while len(deferred):
        [first] = uids(deferred)
        order.append(first)
        deferred.drop(first)
    assert order == ["late", "b", "c", "a", "new"]


def test_more_are_tried_as_long_as_all_go_in() -> None:
    deferred = Deferred()
    for n in range(200):
        deferred.put(job(str(n)), FULL, START)
    tried = []
    for _ in range(9):
        tried.append(len(uids(deferred)))
        deferred.went_in("team")
    assert tried == [1, 2, 4, 8, 16, 32, MOST_AT_ONCE, MOST_AT_ONCE, MOST_AT_ONCE]
    assert len(uids(deferred, room=3)) == 3
    assert uids(deferred, room=0) == []
    deferred.put_off("team", None, START)
    assert len(uids(deferred)) == 1


def test_pauses_are_as_long_as_the_quota_says_within_bounds() -> None:
    for wanted_s, given_s in ((0.01, LEAST_PAUSE_S), (3.0, 3.0), (900.0, MOST_PAUSE_S)):
        deferred = Deferred()
        deferred.put(job("a"), QuotaExceeded("l", 1, 1, wanted_s), START)
        for begun in (START, START + 50):
            assert deferred.due(begun + given_s - 0.01) == []
            assert deferred.due(begun + given_s) == ["team"]
            deferred.put_off("team", None, START + 50)


def test_namespaces_have_nothing_to_do_with_each_other() -> None:
    deferred = Deferred()
    deferred.put(job("a", "slow"), QuotaExceeded("l", 1, 1, 9.0), START)
    deferred.put(job("b", "fast"), QuotaExceeded("l", 1, 1, 2.0), START)
    assert deferred.due(START + 5) == ["fast"]
    assert deferred.due(START + 9) == ["fast", "slow"]
    assert deferred.reason("other") is None
    deferred.put_off("fast", FULL, START + 9)
    assert deferred.reason("fast") is FULL


def test_what_is_gone_leaves_nothing_behind() -> None:
    deferred = Deferred()
    deferred.put(job("a"), FULL, START)
    assert "a" in deferred
    assert deferred.drop("a")
    assert not deferred.drop("a")
    assert (len(deferred), deferred.reason("team"), uids(deferred)) == (0, None, [])
    deferred.put_off("team", FULL, START)
    deferred.went_in("team")
    assert not deferred.is_due("team", START + 100)
