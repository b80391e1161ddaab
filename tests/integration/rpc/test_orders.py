"""What the cluster's operators order of a session that is connected."""

import asyncio
from collections.abc import Callable
from typing import Any

import grpc
import pytest
from tests.waiting import DEADLINE_S

from queue_operator.backends.protocol import SessionOrder, Sessions
from queue_operator.domain.job import Job
from queue_operator.domain.states import JobState
from queue_operator.queue.service import QueueService

NewJobs = Callable[..., list[Job]]
Connect = Callable[..., Any]


def sessions_of(queue: QueueService) -> Sessions:
    assert isinstance(queue.backend, Sessions)
    return queue.backend


async def test_an_order_is_followed_on_the_open_connection(
    queue: QueueService, connect: Connect, new_jobs: NewJobs
) -> None:
    worker = connect()
    await worker.hello(1)
    await queue.enqueue_jobs(new_jobs(4, tags=frozenset({"eu"})))
    await worker.assignments(1)
    order = SessionOrder(capacity=3, tags=frozenset({"eu"}))
    await sessions_of(queue).order_session(worker.session_id, order)
    await worker.assignments(2)


async def test_a_session_that_was_ended_is_told_to_stay_away(
    queue: QueueService, connect: Connect, new_jobs: NewJobs, namespace: str
) -> None:
    worker, other = connect(), connect()
    await worker.hello()
    await queue.enqueue_jobs(new_jobs(1))
    [job] = await worker.assignments(1)
    await other.hello()
    await sessions_of(queue).order_session(worker.session_id, SessionOrder(ended=True))
    goodbye = (await worker.hear_of("goodbye")).goodbye
    assert not goodbye.reconnect
    assert "QueueWorker" in goodbye.reason
    [again] = await other.assignments(1)
    assert (again.job_id, again.token == job.token) == (job.job_id, False)
    stored = await queue.get_job(job.job_id, namespace=namespace)
    assert (stored.state, stored.assignee_id) == (JobState.RUNNING, other.session_id)
    back = connect(session_id=worker.session_id)
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await asyncio.wait_for(back.hello(), DEADLINE_S)
    assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
