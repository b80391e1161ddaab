"""A worker with free slots is not idle for longer than a poll while there is a job for it, over
random histories: signals get lost, other processes submit, streams come and go.
"""

import asyncio
import os
import random
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.integration.queue.counting import TurningClock, turns

from queue_operator.backends.memory import MemoryBackend, MemoryShelf
from queue_operator.backends.protocol import News, Topic
from queue_operator.domain.errors import Unavailable
from queue_operator.domain.job import Assignment, Demand, Job
from queue_operator.domain.outcome import Outcome
from queue_operator.domain.states import Event
from queue_operator.queue.protocol import EndReason, HandlerType, StreamSpec
from queue_operator.queue.service import QueueService
from queue_operator.queue.stream import JobStream
from queue_operator.settings import QueueSettings
from queue_operator.testing.clauses import proves

FULL = os.environ.get("QUEUE_OPERATOR_TEST_FULL") == "1"
SEEDS, FULL_SEEDS = 12, 200
STEPS = 120
LOST_CLAIMS = 0.1
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
SETTINGS = QueueSettings(lease_ttl_s=86_400.0, idle_poll_s=1.0)
TAGS, TYPES = ("red", "blue", "big"), ("mail", "bill", "scan")


class Forgetful(MemoryBackend):
    """Loses most of its signals and, while `breaks`, the answers to some of the claims."""

    luck: random.Random
    breaks = True

    async def claim(self, demands: Sequence[Demand], **options: Any) -> list[Assignment]:
        found = await super().claim(demands, **options)
        if found and self.breaks and self.luck.random() < LOST_CLAIMS:
            raise Unavailable("the answer is lost")
        return found

    def listen(self) -> AsyncIterator[News]:
        return self._some()

    async def _some(self) -> AsyncIterator[News]:
        async for news in super().listen():
            if self.luck.random() < 0.3:
                yield news
            else:
                yield {topic: kinds for topic, kinds in news.items() if topic is not Topic.READY}


class Worker:
    """Takes whatever comes and holds it until the history says otherwise."""

    def __init__(self, stream: JobStream) -> None:
        self.stream = stream
        self.held: list[Assignment] = []
        self.given = 0
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        while (push := await self.stream.next()) is not None:
            self.stream.delivered(push)
            self.held += push.assignments
            self.given += len(push.assignments)

    async def leave(self) -> None:
        await self.stream.close(EndReason.CLOSED)
        await self._reading


class History:
    def __init__(self, seed: int) -> None:
        self.luck = random.Random(seed)  # noqa: S311
        self.clock = TurningClock()
        self.shelf = MemoryShelf()
        self.queues: list[QueueService] = []
        self.workers: list[Worker] = []
        self.given = 0
        self.backends: list[Forgetful] = []
        self.numbers = iter(range(1_000_000))
        self.other = self.backend()

    def backend(self) -> Forgetful:
        backend = Forgetful(
            self.shelf,
            clock=lambda: EPOCH + timedelta(seconds=self.clock.now_s),
            sleep=self.clock.sleep,
            rng=self.luck.random,
        )
        backend.luck = self.luck
        self.backends.append(backend)
        return backend

    async def begin(self) -> None:
        self.queues = [
            QueueService(self.backend(), SETTINGS, clock=self.clock, rng=self.luck.random)
            for _ in range(2)
        ]
        for queue in self.queues:
            await queue.start()

    def some(self, names: tuple[str, ...], most: int) -> frozenset[str]:
        return frozenset(self.luck.sample(names, self.luck.randint(0, most)))

    async def submit(self) -> None:
        """Through a replica, or by a process that tells nobody."""
        where = self.luck.choice([queue.backend for queue in self.queues] + [self.other])
        for queue in self.queues:
            if queue.backend is where:
                await queue.enqueue_jobs(self.jobs())
                return
        await self.other.enqueue_jobs(self.jobs())

    def jobs(self) -> list[Job]:
        return [
            Job(
                id=f"job-{next(self.numbers)}",
                type=self.luck.choice(TYPES),
                tags=self.some(TAGS, 2),
                delay_s=self.luck.choice([None, None, 0.5, 3.0]),
            )
            for _ in range(self.luck.randint(1, 6))
        ]

    async def join(self) -> None:
        limits = [None, 1]
        named = sorted(self.some(TYPES, 2))
        handlers = [HandlerType(type=n, concurrency=self.luck.choice(limits)) for n in named]
        spec = StreamSpec(
            assignee_id=f"worker-{next(self.numbers)}",
            worker_name="w",
            capacity=self.luck.randint(1, 4),
            tags=self.some(TAGS, 1),
            types=tuple(handlers),
        )
        queue = self.luck.choice(self.queues)
        self.workers.append(Worker(await queue.open_stream(spec)))

    async def leave(self) -> None:
        if self.workers:
            worker = self.workers.pop(self.luck.randrange(len(self.workers)))
            await worker.leave()
            self.given += worker.given

    async def finish(self) -> None:
        for worker in self.workers:
            self.luck.shuffle(worker.held)
            done = [worker.held.pop() for _ in range(len(worker.held) // 2 + 1) if worker.held]
            events = [Event.COMPLETE, Event.RELEASE, Event.FAIL]
            await worker.stream.settle(
                [
                    Outcome(one.job_id, self.luck.choice(events), one.namespace, one.token)
                    for one in done
                ]
            )

    async def lose(self) -> None:
        """An administrator gives a worker up, through another replica maybe."""
        if self.workers:
            worker = self.luck.choice(self.workers)
            await self.luck.choice(self.queues).mark_worker_unresponsive(
                worker.stream.spec.assignee_id
            )
            worker.held.clear()
            await worker.stream.heartbeat([])

    async def wait(self) -> None:
        await self.clock.pass_by(self.luck.uniform(0.0, 2.0))

    async def step(self) -> None:
        acts = (self.submit, self.submit, self.join, self.leave, self.finish, self.lose, self.wait)
        await self.luck.choice(acts)()

    async def rest(self) -> None:
        """One poll whose answer arrives, and what follows from it."""
        self.break_answers(False)
        await self.clock.pass_by(SETTINGS.idle_poll_s + 0.1)
        await turns(200)
        self.break_answers(True)

    def break_answers(self, on: bool) -> None:
        for backend in self.backends:
            backend.breaks = on

    async def idle(self) -> list[str]:
        """Workers that could have a job now, and have not."""
        found = []
        for worker in self.workers:
            stream = worker.stream
            for group in stream.groups:
                free = stream.slots.free_for(group.limited) if group.limited else stream.slots.free
                now = EPOCH + timedelta(seconds=self.clock.now_s)
                wanted = _demand(stream, group.filter.types)
                there = self.shelf.claimable(wanted, now - timedelta(seconds=1.1), 1)
                if free and stream.accepting and there:
                    found.append(f"{stream.spec} lacks {there[0].job.id}")
        return found

    async def end(self) -> None:
        for queue in self.queues:
            await queue.close()


def _demand(stream: JobStream, types: frozenset[str]) -> Demand:
    return Demand(assignee_id="x", limit=1, tags=stream.spec.tags, types=types)


@proves("queue-api.Dispatch.rule.10")
@pytest.mark.parametrize("seed", range(FULL_SEEDS if FULL else SEEDS))
async def test_no_worker_idles_while_there_is_a_job_for_it(seed: int) -> None:
    history = History(seed)
    await history.begin()
    for _ in range(STEPS):
        await history.step()
        if history.luck.random() < 0.2:
            await history.rest()
            assert await history.idle() == []
    await history.end()
    given = history.given + sum(worker.given for worker in history.workers)
    assert given, "nothing was given out"
