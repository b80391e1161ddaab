"""Two replicas on one PostgreSQL: how soon one acts on what happened on the other.

Time stands still unless a test lets it pass, so that what comes meanwhile was told, and what comes
after a quarter of a second was read.
"""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
from tests.integration.queue.counting import PacedClock, paced_queue
from tests.waiting import DEADLINE_S

from queue_operator.domain.job import Job
from queue_operator.queue.protocol import Push, Stream, StreamSpec
from queue_operator.queue.service import QueueService
from queue_operator.testing.clauses import proves

NewJobs = Callable[..., list[Job]]
NewSpec = Callable[..., StreamSpec]
POLL_S = 0.25
SOON_S = 0.5
"""In which news come on most machines; where they do not, they are waited for once more."""


class Polls:
    """Where a replica stands between two polls. One that reads while time is let pass may have read
    before what it is to find, and goes to sleep when the time is over.
    """

    def __init__(self, clock: PacedClock) -> None:
        self._clock = clock
        self._asleep = asyncio.Event()

    async def sleep(self, delay_s: float) -> None:
        self._asleep.set()
        try:
            await self._clock.sleep(delay_s)
        finally:
            self._asleep.clear()

    async def until_asleep(self) -> None:
        await asyncio.wait_for(self._asleep.wait(), DEADLINE_S)


class Replicas:
    """Streams are on `here`; `there` makes the calls. `told` says whether `here` hears of them."""

    def __init__(
        self, here: QueueService, there: QueueService, clock: PacedClock, polls: Polls
    ) -> None:
        self.here = here
        self.there = there
        self.told = True
        self.clock = clock
        self._polls = polls

    async def soon(self, stream: Stream) -> Push:
        """The next push: while time stands still if `here` is told, else after one poll."""
        step = asyncio.ensure_future(stream.next())
        if not self.told:
            for _ in range(20):
                await self.here.ping()
            assert not step.done(), "nobody could know of it yet"
            await self._polls.until_asleep()
            await self.clock.pass_by(POLL_S)
        await asyncio.wait([step], timeout=DEADLINE_S)
        assert step.done(), f"nothing came within {POLL_S} s"
        push = step.result()
        assert push is not None
        stream.delivered(push)
        return push


@pytest.fixture(params=[True, False], ids=["told", "not told"])
async def replicas(
    request: pytest.FixtureRequest, dsn: str, new_jobs: NewJobs, new_spec: NewSpec
) -> AsyncIterator[Replicas]:
    clock = PacedClock()
    polls = Polls(clock)
    async with (
        paced_queue(dsn, clock, deaf=not request.param, polls=polls.sleep) as here,
        paced_queue(dsn, clock) as there,
    ):
        replicas = Replicas(here, there, clock, polls)
        async with asyncio.timeout(DEADLINE_S):
            # A first job has been through both: all that begins has begun. Who is told of things
            # was told of one, while time stood still: it has its line to the server.
            while not await comes(replicas, new_jobs, new_spec) and request.param:
                pass
        replicas.told = request.param
        yield replicas


async def comes(replicas: Replicas, new_jobs: NewJobs, new_spec: NewSpec) -> bool:
    """A job comes to a stream; whether it did so while time stood still."""
    tags = frozenset({"first"})
    stream = await replicas.here.open_stream(new_spec(1, tags=tags))
    step = asyncio.ensure_future(stream.next())
    await replicas.there.enqueue_jobs(new_jobs(1, tags=tags))
    await asyncio.wait([step], timeout=SOON_S)
    is_told = step.done()
    while not step.done():
        await replicas.clock.pass_by(POLL_S)
    push = step.result()
    assert push is not None
    stream.delivered(push)
    await stream.close()
    return is_told


@proves("queue-api.Replicas.rule.1")
async def test_a_job_submitted_elsewhere_comes_within_a_poll(
    replicas: Replicas, new_jobs: NewJobs, new_spec: NewSpec
) -> None:
    stream = await replicas.here.open_stream(new_spec(1))
    [job] = new_jobs()
    await replicas.there.enqueue_job(job)
    push = await replicas.soon(stream)
    assert [one.job_id for one in push.assignments] == [job.id]


@proves("queue-api.Replicas.rule.4")
async def test_a_cancel_elsewhere_reaches_the_worker_within_a_poll(
    replicas: Replicas, new_jobs: NewJobs, new_spec: NewSpec, namespace: str
) -> None:
    stream = await replicas.here.open_stream(new_spec(1))
    [job] = new_jobs()
    await replicas.here.enqueue_job(job)
    push = await asyncio.wait_for(stream.next(), DEADLINE_S)
    assert push is not None
    stream.delivered(push)
    await replicas.there.cancel_jobs([], [job.id], namespace=namespace, reason="over there")
    push = await replicas.soon(stream)
    [request] = push.cancels
    assert (request.job_id, request.reason) == (job.id, "over there")
