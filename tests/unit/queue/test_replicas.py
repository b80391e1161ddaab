"""Two replicas on one store: whose jobs and whose sessions they are."""

import asyncio
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from tests.waiting import DEADLINE_S, take, until

from queue_operator.backends.memory import MemoryBackend, MemoryShelf
from queue_operator.backends.protocol import SessionOrder, SessionRoll, WorkerSession
from queue_operator.domain.errors import Forbidden, InvalidArgument, Unavailable
from queue_operator.domain.job import Assignment, Demand, Job, TypeDefaults
from queue_operator.domain.lease import Held, Leased
from queue_operator.domain.states import JobState
from queue_operator.queue.protocol import EndReason, HandlerType, Stream, StreamSpec
from queue_operator.queue.service import QueueService
from queue_operator.settings import QueueSettings
from queue_operator.testing.clauses import proves

FOREVER_S = 3600.0


class Backend(MemoryBackend):
    """Loses answers of claims, `lost` of them, and after that `away` looks at what is leased."""

    def __init__(self, shelf: MemoryShelf) -> None:
        super().__init__(shelf)
        self.lost = 0
        self.away = 0
        self.calls: Counter[str] = Counter()

    async def claim(
        self,
        demands: Sequence[Demand],
        *,
        lease_ttl_s: float,
        defaults: Mapping[str, TypeDefaults] | None = None,
    ) -> list[Assignment]:
        given = await super().claim(demands, lease_ttl_s=lease_ttl_s, defaults=defaults)
        if given and self.lost:
            self.lost -= 1
            raise Unavailable("the answer was lost")
        return given

    async def leased(self, assignee_ids: Collection[str]) -> list[Leased]:
        self.calls["leased"] += 1
        if not self.lost and self.away:
            self.away -= 1
            raise Unavailable("the store is away")
        return await super().leased(assignee_ids)

    async def keep_sessions(self, roll: SessionRoll) -> bool:
        self.calls["keep_sessions"] += 1
        return await super().keep_sessions(roll)

    async def touch_sessions(self, sessions: Sequence[WorkerSession]) -> None:
        self.calls["touch_sessions"] += 1
        await super().touch_sessions(sessions)

    async def get_job(self, job_id: str, *, namespace: str = "default") -> Job:
        self.calls["get_job"] += 1
        return await super().get_job(job_id, namespace=namespace)


@pytest.fixture
def shelf() -> MemoryShelf:
    return MemoryShelf()


@pytest.fixture
async def replicas(shelf: MemoryShelf) -> AsyncIterator[tuple[QueueService, QueueService]]:
    """No poll and no lease's end hides what is missing."""
    settings = QueueSettings(lease_ttl_s=FOREVER_S, idle_poll_s=FOREVER_S)
    queues = [QueueService(Backend(shelf), settings, replica=name) for name in "ab"]
    for queue in queues:
        await queue.start()
    yield queues[0], queues[1]
    for queue in queues:
        await queue.close()


@pytest.fixture
def a(replicas: tuple[QueueService, QueueService]) -> QueueService:
    return replicas[0]


@pytest.fixture
def b(replicas: tuple[QueueService, QueueService]) -> QueueService:
    return replicas[1]


def store_of(queue: QueueService) -> Backend:
    assert isinstance(queue.backend, Backend)
    return queue.backend


def spec(session_id: str = "s", capacity: int = 3, **fields: Any) -> StreamSpec:
    """Of one process, the same for a session's every stream."""
    values = {"worker_name": "w", "pod_uid": "pod", "process": session_id} | fields
    return StreamSpec(assignee_id=session_id, capacity=capacity, **values)


async def submit(queue: QueueService, count: int, **fields: Any) -> list[str]:
    jobs = [Job(id=uuid.uuid4().hex, type="mail", **fields) for _ in range(count)]
    return await queue.enqueue_jobs(jobs)


async def ended(stream: Stream) -> EndReason | None:
    async with asyncio.timeout(DEADLINE_S):
        while await stream.next() is not None:
            pass
    return stream.end_reason


async def running(queue: QueueService) -> int:
    return (await queue.get_job_stats([])).running_jobs


def held(jobs: Sequence[Assignment]) -> list[Held]:
    return [Held(job.job_id, job.token, job.namespace) for job in jobs]


# Claims whose answer was lost


@proves("queue-api.Slots.rule.10")
async def test_a_claim_whose_answer_was_lost_costs_neither_time_nor_an_attempt(
    a: QueueService,
) -> None:
    store_of(a).lost, store_of(a).away = 2, 2
    stream = await a.open_stream(spec(capacity=3))
    ids = await submit(a, 3)
    jobs = await take(stream, 3)
    assert ({job.job_id for job in jobs}, {job.attempt for job in jobs}) == (set(ids), {1})
    assert (store_of(a).lost, store_of(a).away) == (0, 0)


@proves("queue-api.Slots.rule.10")
async def test_a_claim_whose_answer_was_lost_does_not_overfill_a_stream(a: QueueService) -> None:
    stream = await a.open_stream(spec(capacity=2))
    claims: list[int] = []
    claim = store_of(a).claim

    async def counted(*args: Any, **options: Any) -> list[Assignment]:
        try:
            return await claim(*args, **options)
        finally:
            claims.append(await running(a))

    store_of(a).claim = counted  # type: ignore[method-assign]
    store_of(a).lost = 3
    await submit(a, 9)
    await take(stream, 2)
    assert len(claims) >= 4
    assert max(claims) == 2


async def test_what_a_library_stream_was_given_in_vain_is_given_back(
    a: QueueService, b: QueueService
) -> None:
    """But not what another replica gave to a stream of the same assignee."""
    async with b.stream_jobs("same", [], 1) as there:
        kept = (await submit(b, 1))[0]
        [job] = await anext(there)
        assert job.id == kept
        store_of(a).lost = 1
        async with a.stream_jobs("same", [], 1) as here:
            other = (await submit(a, 1))[0]
            [job] = await anext(here)
            assert (job.id, job.attempt) == (other, 1)
        await a.keeper.reconcile()
        stored = await a.get_job(kept)
        assert (stored.state, stored.lease_version) == (JobState.RUNNING, 1)


# Slots


@proves("queue-api.Slots.rule.6")
async def test_slots_freed_elsewhere_are_found_with_one_call(
    a: QueueService, b: QueueService
) -> None:
    stream = await a.open_stream(spec(capacity=50))
    await submit(a, 50)
    jobs = await take(stream, 50)
    await stream.heartbeat([])
    for job in jobs[:40]:
        await b.complete_job(job.job_id, b"")
    store_of(a).calls.clear()
    await a.keeper.reconcile()
    assert [usage.busy for usage in a.usage()] == [10]
    assert store_of(a).calls == {"leased": 1}


async def test_a_lost_job_that_the_worker_still_runs_keeps_its_slot(
    a: QueueService, b: QueueService
) -> None:
    stream = await a.open_stream(spec(capacity=2))
    await submit(a, 2)
    jobs = await take(stream, 2)
    await stream.heartbeat(held(jobs[:1]))
    await b.reset_running_jobs()
    await a.keeper.reconcile()
    assert [usage.busy for usage in a.usage()] == [1]


async def test_what_nobody_delivered_to_a_session_is_given_back(a: QueueService) -> None:
    await a.open_stream(spec(capacity=1, tags=frozenset({"none"})))
    [job_id] = await submit(a, 1)
    [unknown] = await store_of(a).claim([Demand(assignee_id="s", limit=1)], lease_ttl_s=FOREVER_S)
    assert unknown.job_id == job_id
    await a.keeper.reconcile()
    stored = await a.get_job(job_id)
    assert (stored.state, stored.attempt) == (JobState.FAILED_RETRY, 0)


async def test_what_the_worker_says_it_runs_is_not_given_back(a: QueueService) -> None:
    stream = await a.open_stream(spec(capacity=1, tags=frozenset({"none"})))
    [job_id] = await submit(a, 1)
    given = await store_of(a).claim([Demand(assignee_id="s", limit=1)], lease_ttl_s=FOREVER_S)
    await stream.heartbeat(held(given))
    await a.keeper.reconcile()
    assert (await a.get_job(job_id)).state is JobState.RUNNING


# Sessions


async def test_a_worker_that_comes_back_elsewhere_gives_back_what_it_does_not_present(
    a: QueueService, b: QueueService
) -> None:
    older = await a.open_stream(spec(capacity=3))
    await submit(a, 3)
    jobs = await take(older, 3)
    newer = await b.open_stream(spec(capacity=3), held(jobs[:1]))
    again = await take(newer, 2)
    assert {job.job_id for job in again} == {job.job_id for job in jobs[1:]}
    assert {job.attempt for job in again} == {1}
    assert (await b.get_job(jobs[0].job_id)).lease_version == 1
    assert [usage.busy for usage in b.usage()] == [3]


async def test_of_two_replicas_the_newer_connection_wins(a: QueueService, b: QueueService) -> None:
    older = await a.open_stream(spec())
    newer = await b.open_stream(spec())
    assert await ended(older) is EndReason.REPLACED
    back = await a.open_stream(spec())
    assert await ended(newer) is EndReason.REPLACED
    await submit(a, 1)
    assert len(await take(back, 1)) == 1


async def test_the_replica_a_worker_left_does_not_touch_its_jobs(
    a: QueueService, b: QueueService
) -> None:
    left = await a.open_stream(spec(tags=frozenset({"none"})))
    stream = await b.open_stream(spec())
    await submit(b, 3)
    jobs = await take(stream, 3)
    await a.keeper.reconcile()
    assert left.end_reason is EndReason.REPLACED
    versions = [(await a.get_job(job.job_id)).lease_version for job in jobs]
    assert (await running(a), versions) == (3, [1, 1, 1])


@pytest.mark.parametrize(
    "other", [{"pod_uid": "another"}, {"worker_name": "another"}, {"namespace": "another"}]
)
async def test_the_session_of_another_worker_is_refused_on_every_replica(
    a: QueueService, b: QueueService, other: dict[str, Any]
) -> None:
    stream = await a.open_stream(spec())
    for queue in (a, b):
        with pytest.raises(Forbidden):
            await queue.open_stream(spec(**other))
    await submit(b, 1)
    assert len(await take(stream, 1)) == 1


async def test_two_workers_with_one_name_do_not_harm_each_other(
    a: QueueService, b: QueueService
) -> None:
    streams = [await a.open_stream(spec("s-1", 1)), await b.open_stream(spec("s-2", 1))]
    await submit(a, 2)
    given = [(await take(stream, 1))[0] for stream in streams]
    assert [job.assignee_id for job in given] == ["s-1", "s-2"]
    assert [stream.end_reason for stream in streams] == [None, None]


@proves("queue-api.Sessions.rule.11")
async def test_a_row_that_was_lost_is_written_again(a: QueueService) -> None:
    stream = await a.open_stream(spec())
    await store_of(a).close_sessions(["s"])
    await a.keeper.follow()
    [listed] = await store_of(a).list_sessions()
    assert (listed.session_id, stream.end_reason) == ("s", None)


async def test_sessions_that_stay_as_they_are_are_kept_in_a_few_words(a: QueueService) -> None:
    streams = [await a.open_stream(spec(name)) for name in ("s-1", "s-2")]
    calls = store_of(a).calls

    async def tended() -> tuple[int, int]:
        calls.clear()
        await a.keeper.tend_sessions()
        return calls["touch_sessions"], calls["keep_sessions"]

    assert await tended() == (1, 0)
    assert await tended() == (0, 1)
    await submit(a, 1)
    await take(streams[0], 1)
    assert await tended() == (1, 0)
    assert {one.busy for one in await store_of(a).list_sessions()} == {0, 1}
    assert await tended() == (0, 1)
    await streams[1].close()
    assert await tended() == (1, 0)
    assert await tended() == (0, 1)


@proves("queue-api.Sessions.rule.4", "queue-api.Sessions.rule.8")
async def test_news_of_sessions_that_were_kept_is_found_by_a_queue_that_hears_nothing(
    shelf: MemoryShelf,
) -> None:
    store, deaf = MemoryBackend(shelf), QueueService(Backend(shelf), replica="deaf")
    ordered, moved = [await deaf.open_stream(spec(name)) for name in ("s-1", "s-2")]

    async def tend(times: int = 1) -> None:
        for _ in range(times):
            await deaf.keeper.tend_sessions()

    await tend(2)
    await store.order_session("s-1", SessionOrder(capacity=7))
    await tend()
    assert ordered.spec.capacity == 7
    await tend(2)
    [other] = [one for one in await store.list_sessions() if one.session_id == "s-2"]
    await store.open_session(replace(other, connection="newer"))
    await tend()
    assert (ordered.end_reason, moved.end_reason) == (None, EndReason.REPLACED)
    await deaf.close()


# Orders


@proves("queue-api.Sessions.rule.8")
async def test_capacity_and_tags_change_on_the_open_stream(
    a: QueueService, b: QueueService
) -> None:
    stream = await a.open_stream(spec(capacity=1))
    await submit(b, 5, tags=frozenset({"eu"}))
    await take(stream, 1)
    await store_of(b).order_session("s", SessionOrder(capacity=3))
    await take(stream, 2)
    await store_of(b).order_session("s", SessionOrder(capacity=5, tags=frozenset({"us"})))
    [job_id] = await submit(b, 1, tags=frozenset({"us", "new"}))
    assert [job.job_id for job in await take(stream, 1)] == [job_id]
    assert (stream.spec.capacity, stream.spec.tags) == (5, frozenset({"us"}))
    await store_of(b).order_session("s", SessionOrder(capacity=5))
    await take(stream, 1)
    [usage] = a.usage()
    assert (usage.busy, usage.spec.tags) == (5, frozenset())


@proves("queue-api.Sessions.rule.8")
async def test_less_capacity_only_blocks_new_jobs(a: QueueService) -> None:
    stream = await a.open_stream(spec(capacity=3))
    await submit(a, 3)
    await take(stream, 3)
    await store_of(a).order_session("s", SessionOrder(capacity=0))
    await a.keeper.follow()
    await submit(a, 1)
    assert (await running(a), stream.end_reason) == (3, None)
    [listed] = await store_of(a).list_sessions()
    await a.keeper.tend_sessions()
    [listed] = await store_of(a).list_sessions()
    assert (listed.capacity, listed.busy, listed.followed) == (3, 3, listed.order_number)


@proves("queue-api.Sessions.rule.8")
async def test_an_order_to_drain_is_followed_and_taken_back(
    a: QueueService, b: QueueService
) -> None:
    stream = await a.open_stream(spec(capacity=3))
    await store_of(b).order_session("s", SessionOrder(drain=True))

    async def drains() -> bool:
        await a.ping()
        return a.usage()[0].draining

    await until(drains)
    await submit(b, 1)
    other = await b.open_stream(spec("other", 1))
    [job] = await take(other, 1)
    # What is on its way to a worker that does not know of the order is not taken from it.
    await stream.heartbeat([])
    assert (await b.get_job(job.job_id)).assignee_id == "other"
    await store_of(b).order_session("s", SessionOrder(drain=False))
    await submit(b, 1)
    assert len(await take(stream, 1)) == 1


async def test_jobs_on_their_way_stay_when_a_session_is_ordered_to_drain(a: QueueService) -> None:
    stream = await a.open_stream(spec(capacity=3))
    await submit(a, 3)
    jobs = await take(stream, 3)
    await store_of(a).order_session("s", SessionOrder(drain=True))
    await a.keeper.follow()
    await stream.heartbeat(held(jobs[:1]))
    assert await running(a) == 3


@proves("queue-api.Sessions.rule.9")
async def test_a_session_that_was_ended_loses_its_jobs_and_does_not_come_back(
    a: QueueService, b: QueueService
) -> None:
    stream = await a.open_stream(spec())
    await submit(a, 2)
    jobs = await take(stream, 2)
    await store_of(b).order_session("s", SessionOrder(ended=True))
    assert await ended(stream) is EndReason.DISCONNECTED
    other = await b.open_stream(spec("other", 5))
    assert {job.job_id for job in await take(other, 2)} == {job.job_id for job in jobs}
    for queue in (a, b):
        with pytest.raises(Forbidden):
            await queue.open_stream(spec(), held(jobs))


# What may be asked for


@proves("queue-api.Dispatch.rule.13")
@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"capacity": 0}, "capacity"),
        ({"capacity": -1}, "capacity"),
        ({"capacity": 10**9}, "capacity"),
        ({"session_id": ""}, "assignee_id"),
        ({"namespace": ""}, "namespace"),
        ({"tags": frozenset({""})}, "tags"),
        ({"worker_name": "\x00"}, "worker_name"),
        ({"host": "h" * 256}, "host"),
        ({"types": (HandlerType(type=""),)}, "types[0].type"),
        ({"types": (HandlerType(type="t"), HandlerType(type="t"))}, "types[1].type"),
        ({"types": (HandlerType(type="t", concurrency=0),)}, "types[0].concurrency"),
    ],
)
async def test_a_stream_that_asks_for_what_cannot_be_is_refused(
    a: QueueService, fields: dict[str, Any], field: str
) -> None:
    healthy = await a.open_stream(spec("healthy", 1))
    with pytest.raises(InvalidArgument) as caught:
        await a.open_stream(spec(**fields))
    assert caught.value.field == field
    await submit(a, 1)
    assert len(await take(healthy, 1)) == 1
