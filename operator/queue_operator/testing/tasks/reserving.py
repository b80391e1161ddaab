"""Tasks wait, and are reserved in order."""

from datetime import timedelta, timezone

import pytest

from queue_operator.tasks import Value
from queue_operator.testing.clauses import proves
from queue_operator.testing.tasks.store import LATER, NOON, TaskStore, connected, enqueue, ids

INSTANT = timedelta(microseconds=1)
VALUES: list[Value] = [
    None,
    True,
    0,
    -(2**70),
    5e-324,
    -1.5e308,
    "",
    "ü \N{SNOWMAN} \N{GRINNING FACE} \x00 \ud800 '; DROP TABLE tasks; --",
    b"",
    b"\x00\xff{}",
    [],
    {},
    {"b": [1, 1.0, None, {"": [[]]}], "a": False},
    "x" * 100_000,
]


def same(one: Value, other: Value) -> bool:
    """Equal, and of equal types: True is not 1."""
    return repr(one) == repr(other)


@proves("backend-sqlite.EnqueueTask.pre.1", "backend-sqlite.EnqueueTask.then.1")
async def test_a_task_waits_until_its_time_has_come(task_store: TaskStore) -> None:
    async with connected(task_store) as backend:
        await backend.enqueue("one", {"n": 1}, NOON)
        assert await backend.reserve(10, NOON - INSTANT) == []
        [task] = await backend.reserve(10, NOON)
    assert (task.task_id, task.payload, task.available_at) == ("one", {"n": 1}, NOON)


@proves("backend-sqlite.EnqueueTask.then.1")
async def test_times_of_any_zone_are_the_moments_they_are(task_store: TaskStore) -> None:
    east = timezone(timedelta(hours=5, minutes=30))
    west = timezone(timedelta(hours=-8))
    async with connected(task_store) as backend:
        await backend.enqueue("one", None, NOON.astimezone(east))
        assert await backend.reserve(1, (NOON - INSTANT).astimezone(west)) == []
        [task] = await backend.reserve(1, NOON.astimezone(west))
    assert task.available_at == NOON
    assert task.available_at.utcoffset() == timedelta(0)


@pytest.mark.parametrize("payload", VALUES, ids=lambda value: repr(value)[:20])
@proves("backend-sqlite.EnqueueTask.then.1")
async def test_a_payload_comes_back_as_it_was(task_store: TaskStore, payload: Value) -> None:
    async with connected(task_store) as backend:
        await enqueue(backend, "one", payload=payload)
        [task] = await backend.reserve(1, NOON)
    assert same(task.payload, payload)


@proves("backend-sqlite.ReserveTasks.pre.1", "backend-sqlite.ReserveTasks.then.1")
async def test_no_more_are_reserved_than_asked_for(task_store: TaskStore) -> None:
    async with connected(task_store) as backend:
        await enqueue(backend, "a", "b", "c", "d", "e")
        assert ids(await backend.reserve(2, NOON)) == ["a", "b"]
        assert ids(await backend.reserve(2, NOON)) == ["c", "d"]
        assert ids(await backend.reserve(1_000_000, NOON)) == ["e"]
        assert await backend.reserve(1, NOON) == []


@proves("backend-sqlite.ReserveTasks.then.2")
async def test_a_reserved_task_is_nobody_elses_however_late(task_store: TaskStore) -> None:
    async with connected(task_store) as backend:
        await enqueue(backend, "one")
        await backend.reserve(1, NOON)
        assert await backend.reserve(1, LATER + timedelta(days=365)) == []
        await backend.mark_success("one", None)
        assert await backend.reserve(1, LATER) == []


@proves("backend-sqlite.ReserveTasks.then.2", "backend-sqlite.ReserveTasks.then.3")
async def test_a_reservation_describes_each_task(task_store: TaskStore) -> None:
    async with connected(task_store) as backend:
        await backend.enqueue("first", b"\x00", NOON - INSTANT)
        enqueued_at = task_store.clock.advance(1)
        await backend.enqueue("second", ["x"], NOON)
        started_at = task_store.clock.advance(1)
        first, second = await backend.reserve(5, LATER)
    assert (first.task_id, first.payload, first.available_at) == ("first", b"\x00", NOON - INSTANT)
    assert (first.enqueued_at, first.started_at) == (NOON, started_at)
    assert (second.task_id, second.payload, second.available_at) == ("second", ["x"], NOON)
    assert (second.enqueued_at, second.started_at) == (enqueued_at, started_at)


@proves("backend-sqlite.Refusals.rule.1")
async def test_the_longest_available_comes_first(task_store: TaskStore) -> None:
    async with connected(task_store) as backend:
        for task_id, seconds in [("b", 2), ("d", 4), ("a", 1), ("c", 3)]:
            await backend.enqueue(task_id, None, NOON + timedelta(seconds=seconds))
        assert ids(await backend.reserve(2, LATER)) == ["a", "b"]
        assert ids(await backend.reserve(2, LATER)) == ["c", "d"]


@proves("backend-sqlite.Refusals.rule.1")
async def test_of_equally_available_the_longest_enqueued_comes_first(
    task_store: TaskStore,
) -> None:
    async with connected(task_store) as backend:
        for task_id, seconds in [("b", 2), ("c", 3), ("a", 1)]:
            task_store.clock.now = NOON + timedelta(seconds=seconds)
            await enqueue(backend, task_id)
        assert ids(await backend.reserve(3, LATER)) == ["a", "b", "c"]


@proves("backend-sqlite.Refusals.rule.1")
async def test_of_equal_times_the_first_to_come_comes_first(task_store: TaskStore) -> None:
    names = ["m", "z", "a", "k", "b"]
    async with connected(task_store) as backend:
        await enqueue(backend, *names)
        assert ids(await backend.reserve(5, NOON)) == names
