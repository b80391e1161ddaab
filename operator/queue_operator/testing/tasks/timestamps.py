"""The times of a task are the store's own, in UTC."""

from datetime import UTC, datetime, timedelta, timezone

from queue_operator.testing.clauses import proves
from queue_operator.testing.tasks.store import LATER, NOON, TaskStore, connected, enqueue

WEST = timezone(timedelta(hours=-8))


@proves("backend-sqlite.EnqueuedAt.pre.1", "backend-sqlite.EnqueuedAt.then.1")
async def test_enqueued_at_is_when_it_was_enqueued(task_store: TaskStore) -> None:
    task_store.clock.now = datetime(2026, 1, 1, 4, 0, 0, 1, tzinfo=WEST)
    async with connected(task_store) as backend:
        await backend.enqueue("one", None, NOON - timedelta(days=1))
        await backend.enqueue("two", None, LATER)
        task_store.clock.advance(5)
        one, two = await backend.reserve(2, LATER)
    expected = NOON + timedelta(microseconds=1)
    assert one.enqueued_at == two.enqueued_at == expected
    assert one.enqueued_at.tzinfo is two.enqueued_at.tzinfo is UTC


@proves("backend-sqlite.StartedAt.pre.1", "backend-sqlite.StartedAt.then.1")
async def test_started_at_is_when_it_was_reserved(task_store: TaskStore) -> None:
    async with connected(task_store) as backend:
        await enqueue(backend, "one", "two")
        first = task_store.clock.advance(0.000001)
        # What counts as now decides who is available, and is no time of the store's.
        [one] = await backend.reserve(1, LATER)
        task_store.clock.now = (NOON + timedelta(seconds=2)).astimezone(WEST)
        [two] = await backend.reserve(1, NOON)
    assert (one.started_at, two.started_at) == (first, NOON + timedelta(seconds=2))
    assert one.started_at.tzinfo is two.started_at.tzinfo is UTC


@proves("backend-sqlite.Timestamps.rule.1", "backend-sqlite.PersistResults.then.1")
async def test_a_result_has_all_three_times(task_store: TaskStore) -> None:
    async with connected(task_store) as backend:
        await enqueue(backend, "good", "bad")
        started_at = task_store.clock.advance(60)
        [good, bad] = await backend.reserve(2, NOON)
        finished_at = task_store.clock.advance(60)
        await backend.mark_success("good", None)
        await backend.mark_failure("bad", "no", "")
        results = [await backend.get_result(task.task_id) for task in (good, bad)]
    for result in results:
        assert result is not None
        times = [result.enqueued_at, result.started_at, result.finished_at]
        assert times == [NOON, started_at, finished_at]
        assert all(time.tzinfo is UTC for time in times)
