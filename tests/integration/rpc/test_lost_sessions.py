"""Which ends of a session are goodbyes, and which lose the worker."""

from collections.abc import Callable
from typing import Any

import grpc
import pytest
from tests.waiting import until

from queue_operator.domain.job import Job
from queue_operator.queue.service import QueueService
from queue_operator.wire.v1 import worker_pb2 as pb

NewJobs = Callable[..., list[Job]]
Connect = Callable[..., Any]


@pytest.mark.parametrize("drains", [True, False])
async def test_a_worker_that_says_its_last_is_not_lost(
    queue: QueueService, connect: Connect, namespace: str, drains: bool
) -> None:
    worker = connect()
    await worker.hello()
    if drains:
        await worker.say(drain=pb.Drain())
    await worker.call.done_writing()
    assert await worker.call.read() == grpc.aio.EOF
    backend: Any = queue.backend
    assert namespace not in {one.namespace for one in await backend.list_sessions()}
    assert await backend.lost_workers(namespace) == []


async def test_a_worker_whose_connection_breaks_is_lost_until_it_is_back(
    queue: QueueService, connect: Connect, namespace: str
) -> None:
    backend: Any = queue.backend
    worker = connect()
    await worker.hello()
    await worker.channel.close()

    async def is_lost() -> bool:
        return bool(await backend.lost_workers(namespace))

    await until(is_lost)
    [found] = await backend.lost_workers(namespace)
    assert (found.session_id, found.worker_name, found.jobs) == (worker.session_id, "w", 0)
    await connect().hello()
    assert not await is_lost()


async def test_a_lost_worker_is_told_of_with_the_jobs_it_had(
    queue: QueueService, connect: Connect, new_jobs: NewJobs, namespace: str
) -> None:
    worker = connect()
    await worker.hello()
    await queue.enqueue_jobs(new_jobs(3))
    await worker.assignments(3)
    await worker.channel.close()
    backend: Any = queue.backend

    async def told() -> bool:
        return [one.jobs for one in await backend.lost_workers(namespace)] == [3]

    await until(told)
