"""Answers of the store that arrive after other news about the same job."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence

import pytest
from tests.waiting import DEADLINE_S, until

from queue_operator.backends.postgres import PostgresBackend
from queue_operator.backends.protocol import Freed
from queue_operator.domain.job import Assignment, Demand, Job, TypeDefaults
from queue_operator.domain.outcome import Outcome, Settled
from queue_operator.domain.states import JobState
from queue_operator.queue.protocol import Stream, StreamSpec
from queue_operator.queue.service import QueueService
from queue_operator.testing.clauses import proves

NewJobs = Callable[..., list[Job]]


async def next_job(stream: Stream) -> Assignment:
    push = await asyncio.wait_for(stream.next(), DEADLINE_S)
    assert push is not None, "the stream has ended"
    stream.delivered(push)
    return push.assignments[0]


class Overtaking(PostgresBackend):
    """The real backend, whose answers come late: after the events are set."""

    claim_answered: asyncio.Event
    failure_answered: asyncio.Event
    settle_asked: asyncio.Event
    settle_answered: asyncio.Event

    async def claim(
        self,
        demands: Sequence[Demand],
        *,
        lease_ttl_s: float,
        defaults: Mapping[str, TypeDefaults] | None = None,
    ) -> list[Assignment]:
        claimed = await super().claim(demands, lease_ttl_s=lease_ttl_s, defaults=defaults)
        await self.claim_answered.wait()
        return claimed

    async def settle(self, outcomes: Sequence[Outcome]) -> list[Settled]:
        self.settle_asked.set()
        await self.settle_answered.wait()
        return await super().settle(outcomes)

    async def fail_job(
        self, job_id: str, error_msg: str, *, namespace: str = "default", token: str | None = None
    ) -> Freed:
        freed = await super().fail_job(job_id, error_msg, namespace=namespace, token=token)
        await self.failure_answered.wait()
        return freed


@pytest.fixture
async def overtaking(dsn: str) -> AsyncIterator[Overtaking]:
    backend = await Overtaking.open(dsn)
    backend.claim_answered, backend.failure_answered = asyncio.Event(), asyncio.Event()
    backend.settle_asked, backend.settle_answered = asyncio.Event(), asyncio.Event()
    backend.settle_answered.set()
    yield backend
    await backend.close()


@pytest.fixture
async def late_queue(overtaking: Overtaking) -> AsyncIterator[QueueService]:
    queue = QueueService(overtaking)
    await queue.start()
    yield queue
    overtaking.claim_answered.set()
    overtaking.failure_answered.set()
    overtaking.settle_answered.set()
    await queue.stop()


async def assigned_unheard(
    queue: QueueService, new_spec: Callable[..., StreamSpec], job: Job
) -> Stream:
    """A stream for which the store has claimed the job, and whose queue has not been told."""
    await queue.enqueue_job(job)
    stream = await queue.open_stream(new_spec(1))

    async def claimed() -> bool:
        return await state(queue, job) is JobState.RUNNING

    await until(claimed)
    return stream


async def state(queue: QueueService, job: Job) -> JobState:
    return (await queue.get_job(job.id, namespace=job.namespace)).state


@proves("queue-api.Cancellation.rule.7")
async def test_a_cancel_that_overtakes_the_assignment_stops_the_job_unseen(
    overtaking: Overtaking,
    late_queue: QueueService,
    new_spec: Callable[..., StreamSpec],
    new_jobs: NewJobs,
) -> None:
    job = new_jobs()[0]
    stream = await assigned_unheard(late_queue, new_spec, job)
    await late_queue.cancel_jobs([], [job.id], namespace=job.namespace)
    overtaking.claim_answered.set()
    await late_queue.enqueue_jobs(new_jobs(1))
    got = await next_job(stream)
    assert got.job_id != job.id
    assert await state(late_queue, job) is JobState.STOPPED


@proves("queue-api.StreamJobsTermination.rule.5")
async def test_a_stream_has_ended_when_what_a_claim_found_for_it_meanwhile_is_back(
    overtaking: Overtaking,
    late_queue: QueueService,
    new_spec: Callable[..., StreamSpec],
    new_jobs: NewJobs,
) -> None:
    job = new_jobs()[0]
    stream = await assigned_unheard(late_queue, new_spec, job)
    overtaking.settle_answered.clear()
    closing = asyncio.ensure_future(stream.close())
    overtaking.claim_answered.set()
    await asyncio.wait_for(overtaking.settle_asked.wait(), DEADLINE_S)
    # As long as a caller could ask, and be told that it runs.
    assert await state(late_queue, job) is JobState.RUNNING
    assert not closing.done()
    overtaking.settle_answered.set()
    await closing
    assert await state(late_queue, job) is JobState.FAILED_RETRY


async def test_old_news_does_not_take_away_a_new_assignment(
    overtaking: Overtaking,
    late_queue: QueueService,
    new_spec: Callable[..., StreamSpec],
    new_jobs: NewJobs,
) -> None:
    overtaking.claim_answered.set()
    stream = await late_queue.open_stream(new_spec(2))
    await late_queue.enqueue_jobs(new_jobs(1))
    job = await next_job(stream)
    failing = asyncio.ensure_future(
        late_queue.fail_job(job.job_id, "by a caller", namespace=job.namespace)
    )

    async def claimed_again() -> bool:
        return (await late_queue.get_job(job.job_id, namespace=job.namespace)).attempt == 2

    await until(claimed_again)
    await late_queue.dispatcher.claimed()
    overtaking.failure_answered.set()
    await failing
    again = await next_job(stream)
    assert (again.job_id, again.attempt) == (job.job_id, 2)
