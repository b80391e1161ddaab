"""Who is woken by what, counted: a stream is woken once for an event that concerns it, whichever
replica it happens on, and never for another's.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import replace

import pytest
from tests.integration.queue.counting import PacedClock
from tests.waiting import DEADLINE_S, take

from queue_operator.backends.postgres import PostgresBackend
from queue_operator.domain.job import Assignment, Demand, Job, TypeDefaults
from queue_operator.domain.outcome import Outcome
from queue_operator.domain.states import Event
from queue_operator.queue.protocol import StreamSpec
from queue_operator.queue.service import QueueService
from queue_operator.queue.stream import JobStream
from queue_operator.settings import QueueSettings
from queue_operator.testing.clauses import proves

NewJobs = Callable[..., list[Job]]
NewSpec = Callable[..., StreamSpec]
RED, BLUE, PROBE = (frozenset({name}) for name in ("red", "blue", "probe"))


class Counting(PostgresBackend):
    """The real backend, with a count of the claims that each stream took part in."""

    looks: Counter[str]

    async def claim(
        self,
        demands: Sequence[Demand],
        *,
        lease_ttl_s: float,
        defaults: Mapping[str, TypeDefaults] | None = None,
    ) -> list[Assignment]:
        self.looks.update({demand.assignee_id for demand in demands})
        return await super().claim(demands, lease_ttl_s=lease_ttl_s, defaults=defaults)


class Scene:
    """Streams on one replica, and another one. Time stands still: nobody polls."""

    def __init__(self, here: QueueService, there: QueueService, looks: Counter[str]) -> None:
        self.here = here
        self.there = there
        self.looks = looks
        self.streams: dict[str, JobStream] = {}
        self.probes: list[Job] = []

    async def next(self, name: str, count: int) -> list[Assignment]:
        return await take(self.streams[name], count)

    async def settled(self, queue: QueueService) -> None:
        """What happened before this on that replica has been acted on."""
        await queue.enqueue_job(self.probes.pop())
        await self.next("probe", 1)

    def counts(self) -> dict[str, int]:
        return {
            name: self.looks[stream.spec.assignee_id]
            for name, stream in self.streams.items()
            if name != "probe"
        }


@pytest.fixture
async def scene(dsn: str, new_spec: NewSpec, new_jobs: NewJobs) -> AsyncIterator[Scene]:
    clock = PacedClock()
    queues = []
    for kind in (Counting, PostgresBackend):
        backend = await kind.open(dsn)
        if isinstance(backend, Counting):
            backend.looks = looks = Counter[str]()
        queues.append(QueueService(backend, QueueSettings(), clock=clock))
    scene = Scene(queues[0], queues[1], looks)
    for queue in queues:
        await queue.start()
    # First the lanes are made, and each replica hears that everything may have changed.
    for tags in (RED, BLUE):
        await scene.here.enqueue_jobs(new_jobs(1, tags=tags, delay_s=86_400.0))
    for name, tags in {"red": RED, "also red": RED, "blue": BLUE, "probe": PROBE}.items():
        scene.streams[name] = await scene.here.open_stream(new_spec(50, tags=tags))
    scene.probes = new_jobs(20, tags=PROBE)
    for queue in (*queues, *queues):
        await scene.settled(queue)
    yield scene
    for queue in queues:
        await queue.close()


async def submission(scene: Scene, queue: QueueService, jobs: list[Job]) -> None:
    await queue.enqueue_jobs(jobs)


async def release(scene: Scene, queue: QueueService, jobs: list[Job]) -> None:
    await _held(scene, queue, jobs, Event.RELEASE)


async def loss(scene: Scene, queue: QueueService, jobs: list[Job]) -> None:
    """Of a worker that took them from the other replica."""
    await _held(scene, queue, jobs, None)


async def _held(scene: Scene, queue: QueueService, jobs: list[Job], event: Event | None) -> None:
    """Jobs that somebody else holds come back."""
    backend = scene.there.backend
    demand = Demand(assignee_id="else", limit=len(jobs), namespace=jobs[0].namespace, tags=RED)
    later = [replace(job, delay_s=0.001) for job in jobs]
    await backend.enqueue_jobs(later)
    held: list[Assignment] = []
    async with asyncio.timeout(DEADLINE_S):
        while len(held) < len(jobs):
            await backend._staging.stage()  # type: ignore[attr-defined]
            held += await backend.claim([demand], lease_ttl_s=600.0)
    # A replica that made them due itself, first, has told everybody.
    for replica in (scene.there, scene.here):
        await scene.settled(replica)
    scene.looks.clear()
    if event is None:
        await queue.mark_worker_unresponsive("else")
        return
    outcomes = [Outcome(one.job_id, event, one.namespace, one.token) for one in held]
    answers = await queue.backend.settle(outcomes)
    assert [answer.error for answer in answers] == [None] * len(held)


async def children(scene: Scene, queue: QueueService, jobs: list[Job]) -> None:
    """They waited for a job that now completes, and that nobody here can take."""
    parent = replace(jobs[0], id=f"{jobs[0].id}-parent", tags=frozenset({"parent"}))
    backend = queue.backend
    await backend.enqueue_jobs([parent, *(replace(job, depends_on=(parent.id,)) for job in jobs)])
    demand = Demand(assignee_id="else", limit=1, namespace=parent.namespace, tags=parent.tags)
    [held] = await backend.claim([demand], lease_ttl_s=600.0)
    await scene.settled(queue)
    scene.looks.clear()
    await backend.settle([Outcome(held.job_id, Event.COMPLETE, held.namespace, held.token)])


@proves("queue-api.Invariants.rule.7")
@pytest.mark.parametrize("where", ["here", "there"])
@pytest.mark.parametrize("event", [submission, release, loss, children])
async def test_each_stream_is_woken_once_by_what_concerns_it(
    scene: Scene,
    new_jobs: NewJobs,
    where: str,
    event: Callable[[Scene, QueueService, list[Job]], Awaitable[None]],
) -> None:
    queue = scene.here if where == "here" else scene.there
    jobs = new_jobs(4, tags=RED)
    scene.looks.clear()
    await event(scene, queue, jobs)
    got = [*await scene.next("red", 2), *await scene.next("also red", 2)]
    assert {one.job_id for one in got} == {job.id for job in jobs}
    await scene.settled(queue)
    assert scene.counts() == {"red": 1, "also red": 1, "blue": 0}
