"""Jobs that may end their worker: each has one to itself, and others wait for it only so long."""

from collections.abc import AsyncIterator

import pytest
from tests.unit.queue.conftest import ManualClock
from tests.waiting import take, until

from queue_operator.backends.memory import MemoryBackend
from queue_operator.domain.job import Assignment, Demand, Job
from queue_operator.domain.lease import Held
from queue_operator.domain.outcome import ErrorInfo, Outcome
from queue_operator.domain.states import Event, JobState
from queue_operator.queue.protocol import StreamSpec
from queue_operator.queue.service import QueueService
from queue_operator.queue.stream import JobStream
from queue_operator.settings import QueueSettings

SUSPECTED = ErrorInfo("its worker was lost", code="WORKER_LOST_AGAIN")


@pytest.fixture
def store() -> MemoryBackend:
    return MemoryBackend()


@pytest.fixture
async def queue(store: MemoryBackend, clock: ManualClock) -> AsyncIterator[QueueService]:
    """Nobody renews, sweeps or polls unless the test does."""
    queue = QueueService(store, QueueSettings(lease_ttl_s=3600), clock=clock)
    await queue.start()
    yield queue
    await queue.close()


class Bench:
    """Gives a stream jobs as a claim does, suspects and others."""

    def __init__(self, store: MemoryBackend, queue: QueueService) -> None:
        self.store, self.queue = store, queue

    async def open(self, name: str = "w", capacity: int = 10) -> JobStream:
        # By tags that no job has: it gets only what it is given here.
        spec = StreamSpec(assignee_id=name, capacity=capacity, tags=frozenset({"nobody's"}))
        stream = await self.queue.open_stream(spec)
        assert isinstance(stream, JobStream)
        return stream

    async def claimed(
        self, stream: JobStream, *names: str, timeout_s: float | None = None
    ) -> list[Assignment]:
        """Jobs whose name begins with `bad` are suspects."""
        jobs = [Job(id=name, type="t", timeout_s=timeout_s) for name in names]
        await self.store.enqueue_jobs(jobs)
        for name in (one for one in names if one.startswith("bad")):
            await self.store.claim([Demand(assignee_id="x", limit=len(names))], lease_ttl_s=60)
            await self.store.settle([Outcome(name, Event.FAIL, error=SUSPECTED)])
            await self.store.mark_worker_unresponsive("x")
        demand = Demand(assignee_id=stream.spec.assignee_id, limit=len(names))
        given = await self.store.claim([demand], lease_ttl_s=3600)
        assert {job.job_id: job.alone for job in given} == {
            name: name.startswith("bad") for name in names
        }
        return given

    async def is_back(self, name: str) -> None:
        """It waits to be claimed again, still a suspect."""

        async def waits() -> bool:
            await self.queue.ping()
            return (await self.store.get_job(name)).state is JobState.FAILED_RETRY

        await until(waits)
        job = await self.store.get_job(name)
        assert job.error is not None
        assert job.error.code == SUSPECTED.code


@pytest.fixture
def bench(store: MemoryBackend, queue: QueueService) -> Bench:
    return Bench(store, queue)


async def done(stream: JobStream, job: Assignment) -> None:
    outcome = Outcome(job.job_id, Event.COMPLETE, job.namespace, job.token, worker_plane=True)
    [answer] = await stream.settle([outcome])
    assert answer.error is None


async def test_a_suspect_waits_until_its_worker_has_nothing_else(bench: Bench) -> None:
    stream = await bench.open()
    stream.push(await bench.claimed(stream, "good-1", "bad-1", "good-2", "bad-2"))
    first, second = await take(stream, 2)
    assert {first.job_id, second.job_id} == {"good-1", "good-2"}
    assert not stream.accepting
    await done(stream, first)
    assert not stream._buffer
    await done(stream, second)
    [alone] = await take(stream, 1)
    assert not stream.accepting
    await done(stream, alone)
    [other] = await take(stream, 1)
    assert {alone.job_id, other.job_id} == {"bad-1", "bad-2"}
    await done(stream, other)
    assert stream.accepting


async def test_a_worker_that_goes_on_with_a_lost_job_has_something_else(bench: Bench) -> None:
    stream = await bench.open()
    stream.push(await bench.claimed(stream, "good", "bad"))
    [good] = await take(stream, 1)
    held = [Held(good.job_id, good.token, good.namespace)]
    await stream.heartbeat(held)
    await bench.queue.stop_job(good.job_id, "elsewhere")
    assert not stream._buffer
    await stream.heartbeat([])
    assert [job.job_id for job in await take(stream, 1)] == ["bad"]


async def test_suspects_go_back_as_such_when_their_stream_ends_or_drains(bench: Bench) -> None:
    leaving, ending = await bench.open("leaving"), await bench.open("ending")
    leaving.push(await bench.claimed(leaving, "good-1", "bad-1"))
    await take(leaving, 1)
    leaving.drain()
    await bench.is_back("bad-1")
    assert (await bench.store.get_job("bad-1")).attempt == 1
    [given] = await bench.store.claim([Demand(assignee_id="ending", limit=1)], lease_ttl_s=60)
    ending.silent = True
    ending.push([given])
    await ending.close()
    await bench.is_back("bad-1")
    assert (await bench.store.get_job("bad-1")).attempt == 1


async def test_a_suspect_that_waits_is_cancelled_at_once(bench: Bench) -> None:
    stream = await bench.open()
    stream.push(await bench.claimed(stream, "good", "bad"))
    await take(stream, 1)
    await bench.queue.cancel_jobs([], ["bad"])

    async def stopped() -> bool:
        await bench.queue.notifier.fetch_cancels()
        return (await bench.store.get_job("bad")).state is JobState.STOPPED

    await until(stopped)
    assert stream.accepting


async def test_no_more_than_half_of_the_workers_are_kept_free(bench: Bench) -> None:
    streams = [await bench.open(f"w-{n}") for n in range(4)]
    for n, stream in enumerate(streams):
        stream.push(await bench.claimed(stream, f"good-{n}", f"bad-{n}"))
        await take(stream, 1)
    await bench.is_back("bad-2")
    await bench.is_back("bad-3")
    assert [stream.accepting for stream in streams] == [False, False, True, True]
    later = (await bench.store.get_job("bad-2")).eligible_at
    now = (await bench.store.get_job("good-2")).assigned_at
    assert later is not None
    assert now is not None
    assert (later - now).total_seconds() > 5
    await streams[0].close()
    await bench.is_back("bad-0")
    # Of four again, there is room for another one.
    await bench.open("w-4")
    streams[2].push(await bench.store.claim([Demand(assignee_id="w-2", limit=1)], lease_ttl_s=60))
    assert not streams[2].accepting


async def test_a_worker_that_is_lost_with_its_suspect_makes_room(bench: Bench) -> None:
    first = await bench.open("first")
    first.push(await bench.claimed(first, "bad-1"))
    await take(first, 1)
    await first.close()
    second = await bench.open("second")
    second.push(await bench.claimed(second, "bad-2"))
    assert [job.job_id for job in await take(second, 1)] == ["bad-2"]


async def test_a_worker_that_is_busy_for_long_is_kept_free_for_a_while(
    bench: Bench, clock: ManualClock
) -> None:
    stream = await bench.open()
    stream.push(await bench.claimed(stream, "long", "bad"))
    await take(stream, 1)
    clock.now_s += 59
    stream.tend_suspects()
    assert not stream.accepting
    clock.now_s += 2
    stream.tend_suspects()
    assert stream.accepting
    await bench.is_back("bad")


async def test_a_suspect_goes_back_before_its_timeout_passes_in_waiting(
    bench: Bench, clock: ManualClock
) -> None:
    stream = await bench.open()
    stream.push(await bench.claimed(stream, "long", "bad-1", timeout_s=10.0))
    [long] = await take(stream, 1)
    # More often than one without a timeout would.
    for _ in range(7):
        clock.now_s += 4
        stream.tend_suspects()
        assert not stream.accepting
        clock.now_s += 2
        stream.tend_suspects()
        await bench.is_back("bad-1")
        assert (await bench.store.get_job("bad-1")).attempt == 1
        await bench.store.settle([Outcome("bad-1", Event.RETRY_NOW)])
        stream.push(await bench.store.claim([Demand(assignee_id="w", limit=1)], lease_ttl_s=3600))
    # Behind another suspect too.
    stream.push(await bench.claimed(stream, "bad-2"))
    await done(stream, long)
    [alone] = await take(stream, 1)
    assert alone.job_id == "bad-1"
    stream.push(await bench.claimed(stream, "bad-3", timeout_s=10.0))
    clock.now_s += 6
    stream.tend_suspects()
    await bench.is_back("bad-3")
    assert [held.job_id for held in stream.to_renew()] == ["bad-2"]


async def test_what_a_suspect_has_waited_is_no_longer_left_of_its_timeout(
    bench: Bench, clock: ManualClock
) -> None:
    stream = await bench.open()
    stream.push(await bench.claimed(stream, "good", "bad", timeout_s=60.0))
    [good] = await take(stream, 1)
    assert good.timeout_s == 60.0
    clock.now_s += 20
    await done(stream, good)
    [alone] = await take(stream, 1)
    assert (alone.job_id, alone.timeout_s) == ("bad", 40.0)


async def test_after_some_tries_a_suspect_is_waited_for(bench: Bench, clock: ManualClock) -> None:
    stream = await bench.open()
    stream.push(await bench.claimed(stream, "long", "bad"))
    [long] = await take(stream, 1)
    tries = 0
    while True:
        clock.now_s += 61
        stream.tend_suspects()
        if not stream.accepting:
            break
        tries += 1
        await bench.is_back("bad")
        await bench.store.settle([Outcome("bad", Event.RETRY_NOW)])
        [given] = await bench.store.claim([Demand(assignee_id="w", limit=1)], lease_ttl_s=3600)
        stream.push([given])
    assert tries == 5
    await done(stream, long)
    assert [job.job_id for job in await take(stream, 1)] == ["bad"]


async def test_leases_of_suspects_that_wait_are_renewed_by_the_queue(bench: Bench) -> None:
    stream = await bench.open()
    given = await bench.claimed(stream, "good", "bad")
    stream.push(given)
    await take(stream, 1)
    [waiting] = [job for job in given if job.alone]
    assert stream.to_renew() == [Held("bad", waiting.token, waiting.namespace)]


async def test_a_suspect_that_had_to_wait_is_not_taken_for_unread(
    bench: Bench, clock: ManualClock
) -> None:
    stream = await bench.open()
    stream.push(await bench.claimed(stream, "good", "bad"))
    [good] = await take(stream, 1)
    clock.now_s += 50
    await done(stream, good)
    stream.release_stalled(30)
    assert [job.job_id for job in await take(stream, 1)] == ["bad"]
