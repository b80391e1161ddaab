"""Many at a time, each over a connection of its own."""

import asyncio

from queue_operator.domain.errors import QueueError
from queue_operator.tasks import DuplicateTask, NotInProgress, TaskBackend, TaskStatus
from queue_operator.testing.clauses import proves
from queue_operator.testing.tasks.store import NOON, TaskStore, connected, enqueue, ids


async def attempt(call: asyncio.Future[None]) -> QueueError | None:
    try:
        await call
    except QueueError as error:
        return error
    return None


@proves("backend-sqlite.Storage.rule.1", "backend-sqlite.Concurrency.rule.1")
async def test_all_connections_see_the_same_tasks(task_store: TaskStore) -> None:
    async with connected(task_store) as one, connected(task_store) as other:
        await enqueue(one, "task")
        assert ids(await other.reserve(1, NOON)) == ["task"]
        await one.mark_success("task", 7)
        result = await other.get_result("task")
    assert result is not None
    assert (result.status, result.value) == (TaskStatus.SUCCESS, 7)


@proves("backend-sqlite.ReserveTasks.then.1", "backend-sqlite.Concurrency.rule.1")
async def test_a_task_is_reserved_by_one(task_store: TaskStore) -> None:
    names = [f"task-{n}" for n in range(200)]

    async def drain(backend: TaskBackend) -> list[str]:
        taken: list[str] = []
        while tasks := await backend.reserve(3, NOON):
            taken += ids(tasks)
        return taken

    async with connected(task_store) as one, connected(task_store) as other:
        await enqueue(one, *names)
        taken = await asyncio.gather(drain(one), drain(other), drain(one), drain(other))
    assert sorted(name for share in taken for name in share) == sorted(names)


@proves("backend-sqlite.Refusals.error.1", "backend-sqlite.Concurrency.rule.1")
async def test_one_of_many_gets_the_id(task_store: TaskStore) -> None:
    async with connected(task_store) as one, connected(task_store) as other:
        calls = [b.enqueue("task", n, NOON) for n, b in enumerate([one, other] * 5)]
        answers = await asyncio.gather(*(attempt(asyncio.ensure_future(c)) for c in calls))
        assert [type(a) for a in answers if a] == [DuplicateTask] * 9
        [task] = await one.reserve(9, NOON)
    assert task.payload == answers.index(None)


@proves("backend-sqlite.Refusals.error.2", "backend-sqlite.Concurrency.rule.1")
async def test_one_of_many_ends_the_task(task_store: TaskStore) -> None:
    async with connected(task_store) as one, connected(task_store) as other:
        await enqueue(one, "task")
        await one.reserve(1, NOON)
        calls = [b.mark_success("task", n) for n, b in enumerate([one, other] * 5)]
        answers = await asyncio.gather(*(attempt(asyncio.ensure_future(c)) for c in calls))
        assert [type(a) for a in answers if a] == [NotInProgress] * 9
        result = await other.get_result("task")
    assert result is not None
    assert result.value == answers.index(None)
