"""Tasks end, and their results stay."""

import pytest

from queue_operator.domain.validation import DEFAULT_LIMITS
from queue_operator.tasks import (
    NotInProgress,
    Result,
    TaskBackend,
    TaskNotFound,
    TaskStatus,
    Value,
)
from queue_operator.testing.clauses import proves
from queue_operator.testing.tasks.reserving import VALUES, same
from queue_operator.testing.tasks.store import NOON, TaskStore, connected, enqueue


async def mark(backend: TaskBackend, call: str, task_id: str) -> None:
    if call == "mark_success":
        await backend.mark_success(task_id, "ours")
    else:
        await backend.mark_failure(task_id, "ours", "trace")


@proves(
    "backend-sqlite.PersistResults.pre.1",
    "backend-sqlite.PersistResults.then.1",
    "backend-sqlite.ResultLookup.rule.1",
    "backend-sqlite.ExistingResult.pre.1",
    "backend-sqlite.ExistingResult.then.1",
)
async def test_a_success_has_its_value(task_store: TaskStore) -> None:
    async with connected(task_store) as backend:
        await enqueue(backend, "one", "other")
        started_at = task_store.clock.advance(1)
        await backend.reserve(2, NOON)
        finished_at = task_store.clock.advance(1)
        await backend.mark_success("one", {"sum": 3})
        assert await backend.get_result("other") is None
        assert await backend.get_result("one") == Result(
            task_id="one",
            status=TaskStatus.SUCCESS,
            value={"sum": 3},
            error=None,
            traceback=None,
            enqueued_at=NOON,
            started_at=started_at,
            finished_at=finished_at,
        )


@proves(
    "backend-sqlite.PersistResults.then.1",
    "backend-sqlite.ResultLookup.rule.1",
    "backend-sqlite.ExistingResult.then.1",
)
async def test_a_failure_has_its_error_and_traceback(task_store: TaskStore) -> None:
    async with connected(task_store) as backend:
        await enqueue(backend, "one")
        started_at = task_store.clock.advance(1)
        await backend.reserve(1, NOON)
        finished_at = task_store.clock.advance(1)
        await backend.mark_failure("one", "no route", "Traceback…\n  line 3")
        assert await backend.get_result("one") == Result(
            task_id="one",
            status=TaskStatus.FAILURE,
            value=None,
            error="no route",
            traceback="Traceback…\n  line 3",
            enqueued_at=NOON,
            started_at=started_at,
            finished_at=finished_at,
        )


@pytest.mark.parametrize("value", VALUES, ids=lambda value: repr(value)[:20])
@proves("backend-sqlite.ExistingResult.then.1")
async def test_a_value_comes_back_as_it_was(task_store: TaskStore, value: Value) -> None:
    async with connected(task_store) as backend:
        await enqueue(backend, "one")
        await backend.reserve(1, NOON)
        await backend.mark_success("one", value)
        result = await backend.get_result("one")
    assert result is not None
    assert same(result.value, value)


@proves("backend-sqlite.MissingResult.pre.1", "backend-sqlite.MissingResult.then.1")
async def test_there_is_no_result_of_an_unknown_task(task_store: TaskStore) -> None:
    async with connected(task_store) as backend:
        assert await backend.get_result("nobody") is None


@proves("backend-sqlite.MissingResult.then.1")
async def test_there_is_no_result_before_the_end(task_store: TaskStore) -> None:
    async with connected(task_store) as backend:
        await enqueue(backend, "one")
        assert await backend.get_result("one") is None
        await backend.reserve(1, NOON)
        assert await backend.get_result("one") is None


@pytest.mark.parametrize("call", ["mark_success", "mark_failure"])
@proves("backend-sqlite.Refusals.error.2", "backend-sqlite.Refusals.rule.2")
async def test_a_waiting_task_cannot_end(task_store: TaskStore, call: str) -> None:
    async with connected(task_store) as backend:
        await enqueue(backend, "one")
        with pytest.raises(NotInProgress, match=f"'one' is pending, and {call}") as refused:
            await mark(backend, call, "one")
        assert (refused.value.field, refused.value.status) == ("task_id", "pending")
        assert await backend.get_result("one") is None
        assert len(await backend.reserve(1, NOON)) == 1


@pytest.mark.parametrize("again", ["mark_success", "mark_failure"])
@pytest.mark.parametrize("first", ["mark_success", "mark_failure"])
@proves("backend-sqlite.Refusals.error.2", "backend-sqlite.Refusals.rule.2")
async def test_a_task_ends_once(task_store: TaskStore, first: str, again: str) -> None:
    async with connected(task_store) as backend:
        await enqueue(backend, "one")
        await backend.reserve(1, NOON)
        await mark(backend, first, "one")
        result = await backend.get_result("one")
        task_store.clock.advance(1)
        with pytest.raises(NotInProgress) as refused:
            await mark(backend, again, "one")
        assert refused.value.status == first.removeprefix("mark_")
        assert await backend.get_result("one") == result


@pytest.mark.parametrize("call", ["mark_success", "mark_failure"])
@proves("backend-sqlite.Refusals.error.3", "backend-sqlite.Refusals.rule.2")
async def test_an_unknown_task_cannot_end(task_store: TaskStore, call: str) -> None:
    async with connected(task_store) as backend:
        await enqueue(backend, "one")
        await backend.reserve(1, NOON)
        with pytest.raises(TaskNotFound, match="'two' does not exist") as refused:
            await mark(backend, call, "two")
        assert refused.value.field == "task_id"
        assert await backend.get_result("two") is None
        assert await backend.get_result("one") is None


@proves("backend-sqlite.PersistResults.then.1")
async def test_no_text_of_a_failure_keeps_the_task_running(task_store: TaskStore) -> None:
    longest = DEFAULT_LIMITS.error_characters
    async with connected(task_store) as backend:
        await enqueue(backend, "odd", "long", "empty")
        await backend.reserve(3, NOON)
        await backend.mark_failure("odd", "a\x00b", "c\ud800d")
        await backend.mark_failure("long", "e" * (longest + 1), "t" * 1_000_000)
        await backend.mark_failure("empty", "", "")
        odd, long, empty = [await backend.get_result(name) for name in ("odd", "long", "empty")]
    assert odd is not None
    assert long is not None
    assert empty is not None
    assert (odd.error, odd.traceback) == ("a\ufffdb", "c\ufffdd")
    assert long.error == "e" * longest
    assert long.traceback == "t" * DEFAULT_LIMITS.stack_characters
    assert (empty.error, empty.traceback) == ("", "")
