"""A test's own place at a rig: a namespace, streams that end with the test, jobs in any state."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable
from contextlib import asynccontextmanager
from datetime import datetime
from functools import partial
from typing import Any, Final

from queue_operator.domain.errors import Unavailable
from queue_operator.domain.job import Job, JobStats
from queue_operator.domain.states import JobState
from queue_operator.queue.protocol import Queue
from queue_operator.testing.queue.rig import BOUND_S, Ask, Pair, QueueRig

# The other calls are for all namespaces, or the job says which.
_NAMELESS: Final = {"enqueue_job", "enqueue_jobs", "mark_worker_unresponsive", "close"}
_NEVER_RUN: Final = {JobState.INITIAL_PENDING, JobState.UNSCHEDULED}
_LOST: Final = {JobState.UNKNOWN_RETRY, JobState.UNKNOWN_STOPPED}
_CANCELLED: Final = {JobState.UNSCHEDULED, JobState.CANCELLING, JobState.UNKNOWN_STOPPED}


class Named:
    """The calls of a queue, each for one namespace unless it says another."""

    def __init__(self, queue: Queue, namespace: str) -> None:
        self._queue = queue
        self._options = {"namespace": namespace}

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        method = getattr(self._queue, name)
        return partial(_bounded, method, {} if name in _NAMELESS else self._options)


@asynccontextmanager
async def bounded(what: str) -> AsyncIterator[None]:
    """A queue that never answers fails its test, not the run."""
    scope = asyncio.timeout(BOUND_S)
    try:
        async with scope:
            yield
    except TimeoutError:
        assert not scope.expired(), f"{what} took more than {BOUND_S:g} s"
        raise


async def _bounded(
    method: Callable[..., Awaitable[Any]], options: dict[str, Any], *given: Any, **named: Any
) -> Any:
    async with bounded("a call of the queue"):
        return await method(*given, **(options | named))


async def _answers(queue: Queue) -> bool:
    try:
        await queue.get_job_stats([])
    except Unavailable:
        return False
    return True


class Consumer:
    """Reads one stream, and can be waiting for its next batch while the test goes on."""

    def __init__(self, rig: QueueRig, iterator: AsyncIterator[list[Job]], assignee: str) -> None:
        self.iterator = iterator
        self.assignee = assignee
        self._rig = rig
        self._step: asyncio.Future[list[Job]] | None = None

    def start(self) -> "Consumer":
        """Begins to wait for the next batch."""
        if self._step is None:
            self._step = asyncio.ensure_future(anext(self.iterator))
        return self

    @property
    def step(self) -> asyncio.Future[list[Job]]:
        """What `start` waits for."""
        assert self._step is not None
        return self._step

    @property
    def waits(self) -> bool:
        return self._step is not None and not self._step.done()

    async def batch(self, *, compare: bool = True) -> list[Job]:
        """The next batch; StopAsyncIteration where the stream has ended. A slot that was freed
        on another replica comes back with a comparison, which is made at once.
        """
        self.start()
        assert self._step is not None
        if compare and self._rig.far and self.waits:
            await self._rig.tick()
        await asyncio.wait([self._step], timeout=BOUND_S)
        assert self._step.done(), f"{self.assignee} was given nothing in {BOUND_S:g} s"
        step, self._step = self._step, None
        return step.result()

    async def take(self, count: int) -> list[Job]:
        """The next jobs, however they are cut into batches."""
        jobs: list[Job] = []
        while len(jobs) < count:
            jobs += await self.batch()
        assert len(jobs) == count, f"{count} jobs were due, {len(jobs)} came"
        return jobs

    async def one(self) -> Job:
        return (await self.take(1))[0]

    async def ends(self) -> None:
        """Returns when the stream has ended without an error."""
        self.start()
        assert self._step is not None
        await asyncio.wait([self._step], timeout=BOUND_S)
        assert self._step.done(), f"the stream is still open after {BOUND_S:g} s"
        assert isinstance(self._step.exception(), StopAsyncIteration)
        self._step = None

    def forget(self) -> None:
        """Lets go of the iterator without closing it, as a loop does that is left by `break`."""
        assert self._step is None
        del self.iterator

    async def close(self) -> None:
        if self._step is not None:
            self._step.cancel()
            await asyncio.wait([self._step])
            # Whoever asked for it is gone.
            self._step.cancelled() or self._step.exception()
            self._step = None
        await self.iterator.aclose()  # type: ignore[attr-defined]


class Desk:
    """`calls` and `streams` of the rig's pair, or of another."""

    def __init__(self, rig: QueueRig, pair: Pair | None = None) -> None:
        self.rig = rig
        self.pair = pair or rig.pair
        self.namespace = f"desk-{uuid.uuid4().hex[:12]}"
        self.calls = Named(self.pair.calls, self.namespace)
        self.streams = Named(self.pair.streams, self.namespace)
        self._consumers: list[Consumer] = []

    async def close(self) -> None:
        for consumer in self._consumers:
            try:
                await consumer.close()
            except Unavailable:
                # Its queue was closed before it.
                continue

    def forget(self, consumer: Consumer) -> None:
        """Does not close the stream at the end."""
        self._consumers.remove(consumer)

    async def reachable(self) -> None:
        """Returns once both sides reach their store again."""
        for queue in dict.fromkeys(self.pair):
            await self.until(partial(_answers, queue))

    # Jobs

    def job(self, **fields: Any) -> Job:
        values = {"id": uuid.uuid4().hex, "type": "work", "namespace": self.namespace} | fields
        return Job(**values)

    async def submit(self, count: int = 1, **fields: Any) -> list[Job]:
        jobs = [self.job(**fields) for _ in range(count)]
        await self.calls.enqueue_jobs(jobs)
        return jobs

    async def get(self, job: Job | str) -> Job:
        stored: Job = await self.calls.get_job(job if isinstance(job, str) else job.id)
        return stored

    async def states(self, jobs: Iterable[Job]) -> list[JobState]:
        return [stored.state for stored in await asyncio.gather(*map(self.get, jobs))]

    async def now(self) -> datetime:
        """The time by the store's clock."""
        [job] = await self.submit(namespace=f"{self.namespace}-clock")
        stored: Job = await self.pair.calls.get_job(job.id, namespace=job.namespace)
        assert stored.created_at is not None
        return stored.created_at

    async def state(self, job: Job) -> JobState:
        return (await self.get(job)).state

    async def stats(self, *tags: str) -> JobStats:
        stats: JobStats = await self.calls.get_job_stats(tags)
        return stats

    # Streams

    def stream(
        self, capacity: int = 10, tags: Collection[str] = (), assignee: str | None = None
    ) -> Consumer:
        assignee = assignee or f"worker-{uuid.uuid4().hex[:12]}"
        iterator = self.pair.streams.stream_jobs(assignee, tags, capacity, namespace=self.namespace)
        consumer = Consumer(self.rig, iterator, assignee)
        self._consumers.append(consumer)
        return consumer

    async def waiting(
        self, capacity: int = 10, tags: Collection[str] = (), assignee: str | None = None
    ) -> Consumer:
        """A stream that has looked for jobs, found none and waits."""
        consumer = await self.looking(capacity, tags, assignee)
        await self.nothing_more(consumer)
        return consumer

    async def looking(
        self, capacity: int = 10, tags: Collection[str] = (), assignee: str | None = None
    ) -> Consumer:
        """A stream that has looked for jobs once."""
        consumer = self.stream(capacity, tags, assignee).start()

        async def has_looked() -> bool:
            return self.rig.looks(consumer.assignee) > 0

        await self.until(has_looked)
        return consumer

    async def holding(
        self, count: int, capacity: int | None = None, **fields: Any
    ) -> tuple[Consumer, list[Job]]:
        """A stream that was given `count` jobs, and the jobs as they came; by default it has
        room for no more.
        """
        await self.submit(count, **fields)
        consumer = self.stream(capacity or count, fields.get("tags", ()))
        return consumer, await consumer.take(count)

    async def settled(self, *, compare: bool = True) -> None:
        """Returns when every wake-up until now has been acted on: a job that was submitted
        after them, elsewhere, was given out. On another replica slots are compared too.
        """
        other = Desk(self.rig, self.pair)
        try:
            consumer = await other.looking(1)
            await other.submit()
            [job] = await consumer.batch(compare=False)
            await other.calls.complete_job(job.id, b"")
        finally:
            await other.close()
        if compare and self.rig.far:
            await self.rig.tick()

    async def compare_later(self, consumer: Consumer) -> None:
        """Asserts that the stream is given nothing before slots are compared with the store."""
        await self.settled(compare=False)
        assert consumer.waits, "the stream was given something"

    async def nothing_more(self, *consumers: Consumer) -> None:
        """Asserts that the streams, although they ask, are given nothing."""
        for consumer in consumers:
            consumer.start()
        await self.settled()
        assert all(consumer.waits for consumer in consumers), "a stream was given something"

    async def until(self, ask: Ask) -> None:
        """Asks again and again until the answer is true."""
        async with bounded("what the test waits for"):
            while not await ask():  # noqa: ASYNC110
                # The store may answer without ever giving way to the queue.
                await asyncio.sleep(0)

    # Any state

    async def job_in(self, state: JobState) -> Job:
        """A job in `state`, as it was stored before; no stream is left open."""
        return (await self.jobs_in(state))[0]

    async def jobs_in(self, *states: JobState) -> list[Job]:
        ran, lost = f"ran-{uuid.uuid4().hex}", f"lost-{uuid.uuid4().hex}"
        jobs = [self._for(state, ran, lost) for state in states]
        await self.calls.enqueue_jobs(jobs)
        await asyncio.gather(
            *(self._run(tag, sum(tag in job.tags for job in jobs)) for tag in (ran, lost))
        )
        placed = list(zip(states, jobs, strict=True))
        cancelled = [job.id for state, job in placed if state in _CANCELLED]
        if cancelled:
            await self.calls.cancel_jobs([], cancelled)
        if _LOST.intersection(states):
            await self.calls.mark_worker_unresponsive(lost)
        await asyncio.gather(*(self._end(state, job) for state, job in placed))
        assert await self.states(jobs) == list(states)
        return jobs

    def _for(self, state: JobState, ran: str, lost: str) -> Job:
        tags = set() if state in _NEVER_RUN else {lost if state in _LOST else ran}
        last = 1 if state is JobState.DEAD_LETTER else None
        return self.job(tags=frozenset(tags), max_attempts=last)

    async def _run(self, tag: str, count: int) -> None:
        if count:
            consumer = self.stream(count, [tag], assignee=tag)
            await consumer.take(count)
            await consumer.close()

    async def _end(self, state: JobState, job: Job) -> None:
        if state is JobState.COMPLETED:
            await self.calls.complete_job(job.id, b"done")
        elif state in (JobState.FAILED_RETRY, JobState.DEAD_LETTER):
            await self.calls.fail_job(job.id, "boom")
        elif state is JobState.STOPPED:
            await self.calls.stop_job(job.id, "enough")
