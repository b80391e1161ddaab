"""What the queue asks of its store, seen from the store's side."""

import asyncio
import inspect
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any

import pytest
from tests.integration.queue.counting import counted

from queue_operator.backends.memory import MemoryBackend, MemoryShelf
from queue_operator.backends.postgres import PostgresBackend
from queue_operator.backends.protocol import Freed
from queue_operator.client.grpc import GrpcQueue
from queue_operator.domain.errors import Forbidden, InvalidArgument
from queue_operator.domain.job import Assignment, Demand, Job, TypeDefaults
from queue_operator.domain.lease import Held, LeaseAnswer, heartbeat_interval_s
from queue_operator.domain.states import JobState
from queue_operator.queue.protocol import JobBatches, Queue, StreamSpec
from queue_operator.queue.service import QueueService
from queue_operator.settings import QueueSettings
from queue_operator.testing.clauses import proves

BOUND_S = 20.0
NEVER_S = 3600.0


class Watched(MemoryBackend):
    """Counts calls, may hold back the answers of claims, and may refuse one assignee's."""

    def __init__(self, shelf: MemoryShelf) -> None:
        super().__init__(shelf)
        self.calls: Counter[str] = Counter()
        self.answers = asyncio.Event()
        self.answers.set()
        self.claimed = asyncio.Event()
        self.refused = ""
        self.completions = asyncio.Event()
        self.completions.set()

    async def complete_job(self, job_id: str, result: bytes, **options: Any) -> Freed:
        self.calls["complete_job"] += 1
        await self.completions.wait()
        return await super().complete_job(job_id, result, **options)

    async def claim(
        self,
        demands: Sequence[Demand],
        *,
        lease_ttl_s: float,
        defaults: Mapping[str, TypeDefaults] | None = None,
    ) -> list[Assignment]:
        self.calls["claim"] += 1
        if any(demand.assignee_id == self.refused for demand in demands):
            raise InvalidArgument("tags", "the store has other limits")
        found = await super().claim(demands, lease_ttl_s=lease_ttl_s, defaults=defaults)
        self.claimed.set()
        await self.answers.wait()
        return found

    async def extend_leases(self, held: Sequence[Held], *, lease_ttl_s: float) -> list[LeaseAnswer]:
        self.calls["extend_leases"] += 1
        return await super().extend_leases(held, lease_ttl_s=lease_ttl_s)


@pytest.fixture
def store() -> Watched:
    return Watched(MemoryShelf())


@pytest.fixture
async def queue(store: Watched) -> AsyncIterator[QueueService]:
    queue = QueueService(store, QueueSettings(lease_ttl_s=NEVER_S, idle_poll_s=NEVER_S))
    await queue.start()
    yield queue
    store.answers.set()
    store.completions.set()
    await queue.close()


def jobs_of(count: int, **fields: object) -> list[Job]:
    return [Job(id=uuid.uuid4().hex, type="t", **fields) for _ in range(count)]  # type: ignore[arg-type]


async def take(stream: JobBatches, count: int) -> list[Job]:
    found: list[Job] = []
    async with asyncio.timeout(BOUND_S):
        while len(found) < count:
            found += await anext(stream)
    return found


async def until(ask: Callable[[], bool]) -> None:
    async with asyncio.timeout(BOUND_S):
        while not ask():  # noqa: ASYNC110
            await asyncio.sleep(0)


async def looked(store: Watched, times: int) -> None:
    await until(lambda: store.calls["claim"] >= times)


async def many_turns() -> None:
    """Whatever is ready to run has run."""
    for _ in range(200):
        await asyncio.sleep(0)


@proves("queue-api.Interface.rule.1")
def test_the_queue_and_its_client_have_every_call() -> None:
    names = [name for name, _ in inspect.getmembers(Queue, inspect.isfunction) if name[0] != "_"]
    assert len(names) == 19
    for name in names:
        wanted = list(inspect.signature(getattr(Queue, name)).parameters)
        for kind in (QueueService, GrpcQueue):
            assert list(inspect.signature(getattr(kind, name)).parameters) == wanted, name


@proves("queue-api.Dispatch.rule.1")
async def test_one_claim_serves_all_streams_that_ask_alike(
    queue: QueueService, store: Watched
) -> None:
    async with AsyncExitStack() as stack:
        streams = [
            await stack.enter_async_context(queue.stream_jobs(f"w{n}", [], 2)) for n in range(50)
        ]
        await looked(store, 1)
        await many_turns()
        before = store.calls["claim"]
        await queue.enqueue_jobs(jobs_of(100))
        for stream in streams:
            await take(stream, 2)
        assert store.calls["claim"] == before + 1


@proves("queue-api.Dispatch.rule.3")
async def test_a_burst_of_submissions_is_no_burst_of_claims(
    queue: QueueService, store: Watched
) -> None:
    async with queue.stream_jobs("w", [], 300) as stream:
        await looked(store, 1)
        await many_turns()
        store.answers.clear()
        before = store.calls["claim"]
        await asyncio.gather(*(queue.enqueue_job(job) for job in jobs_of(200)))
        await many_turns()
        assert store.calls["claim"] == before + 1
        store.answers.set()
        await take(stream, 200)
        assert store.calls["claim"] <= before + 3


@proves(
    "queue-api.StreamJobsTermination.then.1",
    "queue-api.Close.expect.2",
    "queue-api.Dispatch.rule.14",
)
async def test_a_claim_under_way_is_waited_for_and_given_back(
    queue: QueueService, store: Watched
) -> None:
    store.answers.clear()
    [job] = jobs_of(1)
    await queue.enqueue_job(job)
    step = asyncio.ensure_future(anext(queue.stream_jobs("w", [], 1)))
    async with asyncio.timeout(BOUND_S):
        await store.claimed.wait()
    assert (await queue.get_job(job.id)).state is JobState.RUNNING
    closing = asyncio.ensure_future(queue.stop())
    await many_turns()
    assert not closing.done()
    store.answers.set()
    await closing
    with pytest.raises(StopAsyncIteration):
        await step
    stored = await store.get_job(job.id)
    assert (stored.state, stored.attempt) == (JobState.FAILED_RETRY, 0)


@proves("queue-api.ErrorHandling.rule.2", "queue-api.Close.expect.2")
async def test_a_call_whose_caller_is_gone_is_seen_through_before_the_queue_closes(
    queue: QueueService, store: Watched
) -> None:
    [job] = jobs_of(1)
    async with queue.stream_jobs("w", [], 1) as stream:
        await queue.enqueue_job(job)
        await take(stream, 1)
        store.completions.clear()
        calling = asyncio.ensure_future(queue.complete_job(job.id, b"done"))
        await until(lambda: store.calls["complete_job"] == 1)
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        closing = asyncio.ensure_future(queue.stop())
        await many_turns()
        assert not closing.done()
        store.completions.set()
        await closing
    assert (await store.get_job(job.id)).result == b"done"


@proves("queue-api.StreamJobsTermination.rule.3", "queue-api.Dispatch.rule.13")
async def test_a_stream_that_the_store_refuses_ends_alone(
    queue: QueueService, store: Watched
) -> None:
    store.refused = "odd"
    odd = queue.stream_jobs("odd", [], 1)
    async with queue.stream_jobs("even", [], 2) as even:
        await queue.enqueue_jobs(jobs_of(2))
        with pytest.raises(InvalidArgument):
            await anext(odd)
        with pytest.raises((StopAsyncIteration, InvalidArgument)):
            await anext(odd)
        await take(even, 2)


@proves("queue-api.Leases.rule.1")
async def test_leases_are_renewed_together(queue: QueueService, store: Watched) -> None:
    assert QueueSettings().lease_ttl_s == 5.0
    assert heartbeat_interval_s(5.0) == pytest.approx(5.0 / 3)
    async with queue.stream_jobs("a", [], 20) as one, queue.stream_jobs("b", [], 20) as other:
        await queue.enqueue_jobs(jobs_of(40))
        await take(one, 20)
        await take(other, 20)
        before = store.calls["extend_leases"]
        await queue.keeper.renew()
        assert store.calls["extend_leases"] == before + 1


@proves("queue-api.Slots.rule.5")
@pytest.mark.parametrize("status", [JobState.FAILED_RETRY, JobState.UNKNOWN_RETRY])
async def test_an_update_of_the_state_frees_no_slot_at_once(
    queue: QueueService, status: JobState
) -> None:
    async with queue.stream_jobs("w", [], 1) as stream:
        await queue.enqueue_jobs(jobs_of(1))
        [job] = await take(stream, 1)
        await queue.backend.update_job_status(job.id, status, error_msg="x")
        await many_turns()
        assert [usage.busy for usage in queue.usage()] == [1]
        await queue.keeper.renew()
        await queue.keeper.reconcile()
        assert [again.id for again in await take(stream, 1)] == [job.id]


@proves("queue-api.Cancellation.rule.12")
async def test_a_cancel_is_told_to_nobody_of_another_namespace(queue: QueueService) -> None:
    own = await queue.open_stream(StreamSpec(assignee_id="w", capacity=1, namespace="own"))
    impostor = StreamSpec(assignee_id="w", capacity=1, namespace="else")
    with pytest.raises(Forbidden):
        await queue.open_stream(impostor)
    [job] = jobs_of(1, namespace="own")
    await queue.enqueue_job(job)
    push = await own.next()
    assert push is not None
    own.delivered(push)
    await own.close()
    # Its lease goes on, and so does its claim to the name.
    with pytest.raises(Forbidden):
        await queue.open_stream(impostor)
    await queue.cancel_jobs([], [job.id], namespace="own", force=True)
    held = [Held(job.id, push.assignments[0].token, "own")]
    back = await queue.open_stream(own.spec, held)
    assert [answer.cancel_forced for answer in back.adopted] == [True]


@proves("queue-api.Replicas.rule.9")
async def test_a_replica_that_dies_costs_a_lease() -> None:
    shelf = MemoryShelf()
    settings = QueueSettings(lease_ttl_s=0.5, idle_poll_s=0.1)
    dead, alive = QueueService(Watched(shelf), settings), QueueService(Watched(shelf), settings)
    for queue in (dead, alive):
        await queue.start()
    stream = dead.stream_jobs("w", [], 1)
    async with stream:
        await dead.enqueue_jobs(jobs_of(1))
        await until(lambda: dead.usage()[0].busy > 0)
        # No word of its end: its loops stop, and it gives nothing back.
        for part in (dead.dispatcher, dead.keeper, dead.rescuer, dead.notifier):
            await part.stop()
        begin_s = asyncio.get_running_loop().time()
        async with alive.stream_jobs("v", [], 1) as other:
            [again] = await take(other, 1)
            assert again.attempt == 2
            assert asyncio.get_running_loop().time() - begin_s < 3.0
    await dead.close()
    await alive.close()


@proves(
    "queue-api.EnqueueJobs.expect.3",
    "queue-api.CancelJobs.expect.6",
    "queue-api.MarkWorkerUnresponsive.expect.5",
    "queue-api.ResetRunningJobs.expect.6",
    "queue-api.GetJob.expect.4",
)
async def test_ten_thousand_jobs_take_few_statements(postgres_dsn: str) -> None:
    namespace, count = uuid.uuid4().hex, 10_000
    queue = QueueService(await PostgresBackend.open(postgres_dsn))
    spent: dict[str, int] = {}
    async with counted(postgres_dsn) as since:

        async def cost(name: str) -> None:
            spent[name] = sum((await since()).values()) - sum(spent.values())

        jobs = jobs_of(count, namespace=namespace, tags=frozenset({"all"}))
        await cost("before")
        await queue.enqueue_jobs(jobs)
        await cost("enqueue")
        demand = Demand(assignee_id="w", limit=count, namespace=namespace)
        for half in range(2):
            assert await queue.backend.claim([demand], lease_ttl_s=600.0)
            await cost(f"claim {half}")
            if half:
                await queue.reset_running_jobs(namespace=namespace)
            else:
                await queue.mark_worker_unresponsive("w")
            await cost(f"take back {half}")
        await queue.cancel_jobs(["all"], [], namespace=namespace)
        await cost("cancel")
        assert (await queue.get_job(jobs[0].id, namespace=namespace)).state is JobState.STOPPED
        await cost("read")
    await queue.close()
    # A claim is cut into pieces, and no call asks once for each job.
    assert spent["read"] <= 5
    assert max(spent[name] for name in spent if "claim" not in name) < 100
