"""Wrong arguments are refused by name and change nothing."""

from collections.abc import Awaitable, Callable
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import pytest

from queue_operator.domain.errors import InvalidArgument, PayloadTooLarge
from queue_operator.domain.validation import DEFAULT_LIMITS
from queue_operator.tasks import DuplicateTask, TaskBackend
from queue_operator.testing.clauses import proves
from queue_operator.testing.tasks.store import LATER, NOON, TaskStore, connected, enqueue, ids

Call = Callable[[TaskBackend, Any], Awaitable[object]]

EAST = timezone(timedelta(hours=14))
NO_TIMES = [
    datetime(2026, 1, 1, 12),
    datetime(1, 1, 1, tzinfo=EAST),
    date(2026, 1, 1),
    "2026-01-01T12:00:00Z",
    1_767_268_800,
    None,
]
NO_IDS = ["", "x" * (DEFAULT_LIMITS.id_characters + 1), "a\x00b", "\ud800", None, 7, b"one"]
CIRCLE: list[object] = []
CIRCLE.append(CIRCLE)
NO_VALUES = [
    (1, 2),
    {1: "one"},
    {"a": {("b",): 1}},
    {1, 2},
    [b"inside"],
    float("nan"),
    [float("inf")],
    "\ud83d\ude00",
    object(),
    datetime(2026, 1, 1, tzinfo=UTC),
    bytearray(b"x"),
    CIRCLE,
    10**5000,
]
TOO_DEEP: object = None
for _ in range(101):
    TOO_DEEP = [TOO_DEEP]
NO_VALUES.append(TOO_DEEP)
WITH_ID: dict[str, Call] = {
    "enqueue": lambda backend, task_id: backend.enqueue(task_id, None, NOON),
    "mark_success": lambda backend, task_id: backend.mark_success(task_id, None),
    "mark_failure": lambda backend, task_id: backend.mark_failure(task_id, "", ""),
    "get_result": lambda backend, task_id: backend.get_result(task_id),
}


def short(value: object) -> str:
    return type(value).__name__


@pytest.mark.parametrize("stage", ["pending", "in_progress", "success", "failure"])
@proves("backend-sqlite.Refusals.error.1", "backend-sqlite.Refusals.rule.2")
async def test_an_id_is_used_once(task_store: TaskStore, stage: str) -> None:
    async with connected(task_store) as backend:
        await enqueue(backend, "one", payload="first")
        if stage != "pending":
            await backend.reserve(1, NOON)
        if stage == "success":
            await backend.mark_success("one", 1)
        if stage == "failure":
            await backend.mark_failure("one", "no", "")
        result = await backend.get_result("one")
        with pytest.raises(DuplicateTask, match="task_id: 'one' exists") as refused:
            await backend.enqueue("one", "second", NOON - timedelta(days=1))
        assert (refused.value.field, refused.value.task_id) == ("task_id", "one")
        assert await backend.get_result("one") == result
        left = await backend.reserve(5, LATER)
        assert [task.payload for task in left] == ["first"] * (stage == "pending")


@pytest.mark.parametrize("task_id", NO_IDS, ids=short)
@pytest.mark.parametrize("call", WITH_ID)
@proves("backend-sqlite.Refusals.error.6")
async def test_an_id_must_be_text_of_some_length(
    task_store: TaskStore, call: str, task_id: object
) -> None:
    async with connected(task_store) as backend:
        with pytest.raises(InvalidArgument) as refused:
            await WITH_ID[call](backend, task_id)
        assert refused.value.field == "task_id"
        assert await backend.reserve(1, LATER) == []


@proves("backend-sqlite.Refusals.error.6")
async def test_the_longest_id_is_taken(task_store: TaskStore) -> None:
    longest = "ü" * DEFAULT_LIMITS.id_characters
    async with connected(task_store) as backend:
        await enqueue(backend, longest)
        assert ids(await backend.reserve(1, NOON)) == [longest]


@pytest.mark.parametrize("max_items", [0, -1, True, 1.0, "3", None, 1_000_001], ids=repr)
@proves("backend-sqlite.Refusals.error.4", "backend-sqlite.Refusals.rule.2")
async def test_max_items_must_be_a_number_above_zero(task_store: TaskStore, max_items: Any) -> None:
    async with connected(task_store) as backend:
        await enqueue(backend, "one")
        with pytest.raises(InvalidArgument, match="max_items") as refused:
            await backend.reserve(max_items, NOON)
        assert refused.value.field == "max_items"
        assert ids(await backend.reserve(1, NOON)) == ["one"]


@pytest.mark.parametrize("time", NO_TIMES, ids=short)
@proves("backend-sqlite.Refusals.error.5", "backend-sqlite.Refusals.rule.2")
async def test_available_at_must_be_a_moment(task_store: TaskStore, time: Any) -> None:
    async with connected(task_store) as backend:
        with pytest.raises(InvalidArgument) as refused:
            await backend.enqueue("one", None, time)
        assert refused.value.field == "available_at"
        await enqueue(backend, "one")


@pytest.mark.parametrize("time", NO_TIMES, ids=short)
@proves("backend-sqlite.Refusals.error.5", "backend-sqlite.Refusals.rule.2")
async def test_now_must_be_a_moment(task_store: TaskStore, time: Any) -> None:
    async with connected(task_store) as backend:
        await enqueue(backend, "one")
        with pytest.raises(InvalidArgument) as refused:
            await backend.reserve(1, time)
        assert refused.value.field == "now"
        assert len(await backend.reserve(1, NOON)) == 1


@pytest.mark.parametrize("payload", NO_VALUES, ids=short)
@proves("backend-sqlite.Refusals.error.7", "backend-sqlite.Refusals.rule.2")
async def test_a_payload_must_come_back_equal(task_store: TaskStore, payload: Any) -> None:
    async with connected(task_store) as backend:
        with pytest.raises(InvalidArgument) as refused:
            await backend.enqueue("one", payload, NOON)
        assert refused.value.field == "payload"
        await enqueue(backend, "one", payload="good")


@pytest.mark.parametrize("value", NO_VALUES, ids=short)
@proves("backend-sqlite.Refusals.error.7", "backend-sqlite.Refusals.rule.2")
async def test_a_value_must_come_back_equal(task_store: TaskStore, value: Any) -> None:
    async with connected(task_store) as backend:
        await enqueue(backend, "one")
        await backend.reserve(1, NOON)
        with pytest.raises(InvalidArgument) as refused:
            await backend.mark_success("one", value)
        assert refused.value.field == "value"
        # Still in progress: whoever runs it can say that it failed.
        await backend.mark_failure("one", "the value is no value", "")


@proves("backend-sqlite.Refusals.error.8", "backend-sqlite.Refusals.rule.2")
async def test_a_payload_has_a_largest_size(task_store: TaskStore) -> None:
    largest = b"x" * DEFAULT_LIMITS.payload_bytes
    async with connected(task_store) as backend:
        with pytest.raises(PayloadTooLarge) as refused:
            await backend.enqueue("one", largest + b"x", NOON)
        assert (refused.value.field, refused.value.limit) == ("payload", len(largest))
        await backend.enqueue("one", largest, NOON)
        [task] = await backend.reserve(1, NOON)
        assert task.payload == largest


@proves("backend-sqlite.Refusals.error.8", "backend-sqlite.Refusals.rule.2")
async def test_a_value_has_a_largest_size(task_store: TaskStore) -> None:
    async with connected(task_store) as backend:
        await enqueue(backend, "one")
        await backend.reserve(1, NOON)
        with pytest.raises(PayloadTooLarge) as refused:
            await backend.mark_success("one", "x" * DEFAULT_LIMITS.result_bytes)
        assert refused.value.field == "value"
        assert await backend.get_result("one") is None
        await backend.mark_success("one", "x" * (DEFAULT_LIMITS.result_bytes - 2))


@pytest.mark.parametrize(("error", "traceback"), [(None, ""), (ValueError("x"), ""), ("", None)])
@proves("backend-sqlite.Refusals.error.10", "backend-sqlite.Refusals.rule.2")
async def test_error_and_traceback_must_be_text(
    task_store: TaskStore, error: Any, traceback: Any
) -> None:
    async with connected(task_store) as backend:
        await enqueue(backend, "one")
        await backend.reserve(1, NOON)
        with pytest.raises(InvalidArgument) as refused:
            await backend.mark_failure("one", error, traceback)
        assert refused.value.field == ("traceback" if isinstance(error, str) else "error")
        await backend.mark_success("one", None)
