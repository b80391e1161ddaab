"""Several queues on one database, and what an idle one costs."""

import asyncio
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence

from tests.waiting import DEADLINE_S

from queue_operator.backends.postgres import PostgresBackend
from queue_operator.domain.job import Assignment, Demand, Job, TypeDefaults
from queue_operator.domain.lease import Held, LeaseStatus
from queue_operator.domain.outcome import Outcome
from queue_operator.domain.states import Event, JobState
from queue_operator.queue.clock import SystemClock
from queue_operator.queue.protocol import StreamSpec
from queue_operator.queue.service import QueueService
from queue_operator.settings import QueueSettings
from queue_operator.testing.clauses import proves

NewJobs = Callable[..., list[Job]]
OpenQueue = Callable[..., Awaitable[QueueService]]


def spec(namespace: str, capacity: int) -> StreamSpec:
    return StreamSpec(
        assignee_id=uuid.uuid4().hex, capacity=capacity, namespace=namespace, worker_name="w"
    )


async def work(queue: QueueService, stream_spec: StreamSpec, seen: Counter[str], all: int) -> None:
    """Completes whatever comes until the last job of all is seen."""
    stream = await queue.open_stream(stream_spec)
    while (push := await stream.next()) is not None:
        stream.delivered(push)
        seen.update(job.job_id for job in push.assignments)
        assert len(push.assignments) <= stream_spec.capacity
        await stream.settle(
            [
                Outcome(job.job_id, Event.COMPLETE, job.namespace, job.token, worker_plane=True)
                for job in push.assignments
            ]
        )
        if seen.total() >= all:
            return


async def test_a_stream_here_is_woken_by_a_submission_there(
    open_queue: OpenQueue, namespace: str, new_jobs: NewJobs
) -> None:
    here, there = await open_queue(), await open_queue()
    stream = await here.open_stream(spec(namespace, 1))
    first, second = new_jobs(2)
    async with asyncio.timeout(DEADLINE_S):
        await there.enqueue_job(first)
        push = await stream.next()
        assert push is not None
        stream.delivered(push)
        assert [job.job_id for job in push.assignments] == [first.id]
        await there.enqueue_job(second)
        await there.complete_job(first.id, b"", namespace=namespace)
        running = push.assignments[0]
        answers = await stream.heartbeat([Held(first.id, running.token, namespace)])
        assert [answer.status for answer in answers] == [LeaseStatus.ENDED]
        await stream.heartbeat([])
        push = await stream.next()
        assert push is not None
        assert [job.job_id for job in push.assignments] == [second.id]


async def test_every_job_runs_exactly_once_through_many_streams(
    open_queue: OpenQueue, namespace: str, new_jobs: NewJobs
) -> None:
    queues = [await open_queue(), await open_queue()]
    total = 3000
    for start in range(0, total, 500):
        await queues[start % 2].enqueue_jobs(new_jobs(500))
    seen: Counter[str] = Counter()
    workers = [
        asyncio.create_task(work(queues[number % 2], spec(namespace, 37), seen, total))
        for number in range(6)
    ]
    async with asyncio.timeout(DEADLINE_S):
        await asyncio.wait(workers, return_when=asyncio.FIRST_COMPLETED)
    for queue in queues:
        await queue.stop()
    await asyncio.gather(*workers, return_exceptions=True)
    assert len(seen) == total
    assert set(seen.values()) == {1}
    stats = await queues[0].backend.get_job_stats([], namespace=namespace)
    assert (stats.completed_jobs, stats.total_retries) == (total, 0)


class CountingBackend(PostgresBackend):
    """The real backend, with a count of the statements of the queue's loops."""

    calls: Counter[str]

    async def claim(
        self,
        demands: Sequence[Demand],
        *,
        lease_ttl_s: float,
        defaults: Mapping[str, TypeDefaults] | None = None,
    ) -> list[Assignment]:
        self.calls["claim"] += 1
        return await super().claim(demands, lease_ttl_s=lease_ttl_s, defaults=defaults)


class HurriedClock(SystemClock):
    """Passes time as fast as the loops let it, and counts it."""

    def __init__(self) -> None:
        self.slept_s: Counter[float] = Counter()
        self.enough = asyncio.Event()

    async def sleep(self, delay_s: float) -> None:
        self.slept_s[delay_s] += 1
        if self.slept_s[delay_s] >= 20:
            self.enough.set()
        await super().sleep(0.001)


@proves("queue-api.Dispatch.rule.7")
async def test_idle_workers_do_not_poll(dsn: str, namespace: str, new_jobs: NewJobs) -> None:
    backend = await CountingBackend.open(dsn)
    backend.calls = Counter()
    clock = HurriedClock()
    settings = QueueSettings(idle_poll_s=7.0)
    queue = QueueService(backend, settings, clock=clock)
    streams = []
    for _ in range(50):
        streams.append(await queue.open_stream(spec(namespace, 10)))
    await queue.start()
    async with asyncio.timeout(DEADLINE_S):
        await clock.enough.wait()
    polls = clock.slept_s[7.0]
    await queue.close()
    # One claim for all streams at the start, then one for each poll, whatever their number.
    assert backend.calls["claim"] <= polls + 2


@proves("queue-api.Dispatch.rule.6")
async def test_full_workers_do_not_poll_at_all(dsn: str, namespace: str, new_jobs: NewJobs) -> None:
    backend = await CountingBackend.open(dsn)
    backend.calls = Counter()
    clock = HurriedClock()
    queue = QueueService(backend, QueueSettings(idle_poll_s=7.0), clock=clock)
    await queue.start()
    await queue.enqueue_jobs(new_jobs(2))
    stream = await queue.open_stream(spec(namespace, 1))
    async with asyncio.timeout(DEADLINE_S):
        push = await stream.next()
        assert push is not None
        stream.delivered(push)
        claims = backend.calls["claim"]
        await clock.enough.wait()
    assert backend.calls["claim"] == claims
    job = push.assignments[0]
    assert (await queue.get_job(job.job_id, namespace=namespace)).state is JobState.RUNNING
    await queue.close()
