"""`connect` comes first, `close` last, and both may be said twice."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable

import pytest

from queue_operator.tasks import NotConnected, TaskBackend
from queue_operator.testing.clauses import proves
from queue_operator.testing.tasks.store import NOON, TaskStore, connected, enqueue, ids

CALLS: dict[str, Callable[[TaskBackend], Awaitable[object]]] = {
    "enqueue": lambda backend: backend.enqueue("one", None, NOON),
    "reserve": lambda backend: backend.reserve(1, NOON),
    "mark_success": lambda backend: backend.mark_success("one", None),
    "mark_failure": lambda backend: backend.mark_failure("one", "no", ""),
    "get_result": lambda backend: backend.get_result("one"),
}


@proves("backend-sqlite.Protocol.rule.1", "backend-sqlite.Lifecycle.rule.1")
async def test_the_protocol_is_met_and_asynchronous(task_store: TaskStore) -> None:
    backend = task_store.open()
    assert isinstance(backend, TaskBackend)
    for name in ("connect", "close", *CALLS):
        assert inspect.iscoroutinefunction(getattr(backend, name))


@pytest.mark.parametrize("call", CALLS)
@proves("backend-sqlite.Refusals.error.9", "backend-sqlite.Connect.pre.1")
async def test_nothing_works_before_connect(task_store: TaskStore, call: str) -> None:
    backend = task_store.open()
    with pytest.raises(NotConnected, match=r"await connect\(\)") as refused:
        await CALLS[call](backend)
    assert refused.value.field == "backend"


@pytest.mark.parametrize("call", CALLS)
@proves("backend-sqlite.Refusals.error.9", "backend-sqlite.Close.pre.1")
async def test_nothing_works_after_close(task_store: TaskStore, call: str) -> None:
    async with connected(task_store) as backend:
        await enqueue(backend, "one")
        await backend.reserve(1, NOON)
    with pytest.raises(NotConnected):
        await CALLS[call](backend)


@proves("backend-sqlite.Connect.then.1", "backend-sqlite.Connect.then.2")
async def test_connecting_again_changes_nothing(task_store: TaskStore) -> None:
    async with connected(task_store) as backend:
        await asyncio.gather(backend.connect(), enqueue(backend, "one"), backend.connect())
        await backend.connect()
        assert ids(await backend.reserve(2, NOON)) == ["one"]


@proves("backend-sqlite.Lifecycle.rule.1")
async def test_closing_again_changes_nothing(task_store: TaskStore) -> None:
    never_connected = task_store.open()
    await never_connected.close()
    async with connected(task_store) as backend:
        await backend.close()
        await asyncio.gather(backend.close(), backend.close())


@proves("backend-sqlite.Lifecycle.rule.1", "backend-sqlite.Connect.then.1")
async def test_a_closed_backend_can_connect_again(task_store: TaskStore) -> None:
    async with connected(task_store) as backend:
        await enqueue(backend, "one")
        await backend.close()
        await backend.connect()
        assert ids(await backend.reserve(2, NOON)) == ["one"]


@proves("backend-sqlite.Close.pre.1")
async def test_closing_waits_for_what_was_asked_before(task_store: TaskStore) -> None:
    async with connected(task_store) as backend:
        enqueueing = asyncio.gather(*(enqueue(backend, f"task-{n}") for n in range(20)))
        await asyncio.sleep(0)
        await backend.close()
        await enqueueing
        await backend.connect()
        assert len(await backend.reserve(30, NOON)) == 20
