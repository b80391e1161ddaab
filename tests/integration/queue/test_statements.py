"""What the queue costs the database, in statements that the server counted."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pytest
from tests.conftest import migrated_database
from tests.integration.queue.counting import PacedClock, counted, paced_queue
from tests.waiting import DEADLINE_S, take

from queue_operator.backends.postgres import arrivals
from queue_operator.domain.job import Job
from queue_operator.domain.lease import Held
from queue_operator.domain.outcome import Outcome
from queue_operator.domain.states import Event
from queue_operator.queue.protocol import StreamSpec
from queue_operator.queue.service import QueueService
from queue_operator.queue.stream import JobStream
from queue_operator.testing.clauses import proves

NewJobs = Callable[..., list[Job]]
NewSpec = Callable[..., StreamSpec]
JOBS = 1000
PER_1000_JOBS = 60
"""Claims of up to 500 jobs, and outcomes that go together as they come."""
PER_IDLE_MINUTE = 8 * 60
"""Four pulses and one look a second, and what is done three times in each lease of five."""
DISTANT_S = 86_400.0


def own_tag(number: int) -> frozenset[str]:
    return frozenset({f"customer-{number}"})


def distant(job: Job, tags: frozenset[str]) -> Job:
    """For tomorrow: it shows the store the kind of job, and nobody gets it."""
    return replace(job, id=f"{job.id}-distant", tags=tags, delay_s=DISTANT_S)


async def open_all(
    queue: QueueService, specs: Sequence[StreamSpec], at_once: int = 50
) -> list[JobStream]:
    streams: list[JobStream] = []
    for start in range(0, len(specs), at_once):
        part = specs[start : start + at_once]
        streams += await asyncio.gather(*(queue.open_stream(spec) for spec in part))
    return streams


async def work(stream: JobStream, done: Counter[str], enough: asyncio.Event) -> None:
    while (push := await stream.next()) is not None:
        stream.delivered(push)
        await stream.settle(
            [
                Outcome(job.job_id, Event.COMPLETE, job.namespace, job.token, worker_plane=True)
                for job in push.assignments
            ]
        )
        done.update(job.job_id for job in push.assignments)
        if len(done) >= JOBS:
            enough.set()


@proves("queue-api.Dispatch.rule.2", "queue-api.Dispatch.rule.4")
@pytest.mark.parametrize(
    ("count", "tagged"),
    [(1, False), (100, False), (100, True), (1000, True)],
    ids=["one", "a-hundred-alike", "a-hundred-filters", "a-thousand-filters"],
)
async def test_statements_for_a_thousand_jobs(
    dsn: str, new_jobs: NewJobs, new_spec: NewSpec, count: int, tagged: bool
) -> None:
    tags = [own_tag(n) if tagged else frozenset[str]() for n in range(count)]
    specs = [new_spec(JOBS // count, tags=tags[n]) for n in range(count)]
    jobs = [job for n in range(JOBS) for job in new_jobs(tags=tags[n % count])]
    async with paced_queue(dsn, PacedClock()) as queue:
        # What a kind of job costs once, when its first one comes, is no cost of a job.
        await queue.enqueue_jobs([distant(new_jobs()[0], each) for each in set(tags)])
        streams = await open_all(queue, specs)
        done, enough = Counter[str](), asyncio.Event()
        workers = [asyncio.create_task(work(stream, done, enough)) for stream in streams]
        async with counted(dsn) as statements, asyncio.timeout(DEADLINE_S):
            # Time stands still: what is counted is done for the jobs alone.
            await queue.enqueue_jobs(jobs)
            await enough.wait()
            spent = await statements()
    await asyncio.gather(*workers)
    assert set(done.values()) == {1}
    assert sum(spent.values()) <= PER_1000_JOBS, str(spent)


@proves("queue-api.Leases.rule.1")
async def test_all_jobs_of_a_worker_are_renewed_by_one_statement(
    dsn: str, new_jobs: NewJobs, new_spec: NewSpec
) -> None:
    async with paced_queue(dsn, PacedClock()) as queue:
        worker, other = [await queue.open_stream(new_spec(50)) for _ in range(2)]
        await queue.enqueue_jobs(new_jobs(100))
        held = [
            [Held(job.job_id, job.token, job.namespace) for job in await take(stream, 50)]
            for stream in (worker, other)
        ]
        async with counted(dsn) as statements, asyncio.timeout(DEADLINE_S):
            await worker.heartbeat(held[0])
            first = await statements()
            # Of workers that beat at the same time, too.
            await asyncio.gather(worker.heartbeat(held[0]), other.heartbeat(held[1]))
            both = await statements()
    renewing = {query: count for query, count in first.items() if count}
    assert sum(renewing.values()) == 1, str(first)
    assert sum(both.values()) == 2, str(both)


async def idle_minute(
    dsn: str, new_jobs: NewJobs, specs: Sequence[StreamSpec], tags: Sequence[frozenset[str]]
) -> dict[str, int]:
    clock = PacedClock()
    async with paced_queue(dsn, clock) as queue:
        await queue.enqueue_jobs([distant(new_jobs()[0], each) for each in tags[:100]])
        await open_all(queue, specs)
        async with asyncio.timeout(DEADLINE_S):
            await clock.pass_by(5.0)
            async with counted(dsn) as statements:
                await clock.pass_by(60.0)
                return await statements()


@pytest.fixture
def idle_dsn(postgres_admin_dsn: str) -> Iterator[str]:
    """Without leases of other tests, which a sweep would find."""
    with migrated_database(postgres_admin_dsn, "idle") as address:
        yield address


@proves("queue-api.Dispatch.rule.5")
async def test_an_idle_minute_costs_the_same_for_any_number_of_workers(
    idle_dsn: str, new_jobs: NewJobs, new_spec: NewSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The minute passes in a few seconds, and what is read once is not read again within 20 ms.
    monkeypatch.setattr(arrivals, "FRESH_S", 0.0)
    tags = [own_tag(n) for n in range(1000)]
    one = await idle_minute(idle_dsn, new_jobs, [new_spec(tags=tags[0])], tags[:1])
    many = await idle_minute(idle_dsn, new_jobs, [new_spec(tags=each) for each in tags], tags)
    assert sum(one.values()) <= PER_IDLE_MINUTE, str(one)
    assert sum(one.values()) >= 4 * 60, "the pulse did not beat"
    assert abs(sum(many.values()) - sum(one.values())) <= 5, str((one, many))
