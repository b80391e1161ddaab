"""Workers that fall silent with jobs in their hands, and speak again."""

import asyncio
from collections.abc import Sequence

from tests.unit.queue.conftest import ManualClock
from tests.waiting import take

from queue_operator.backends.memory import MemoryBackend
from queue_operator.domain.job import Job
from queue_operator.domain.lease import Held, LeaseAnswer
from queue_operator.domain.outcome import Outcome
from queue_operator.domain.states import Event, JobState
from queue_operator.queue.protocol import StreamSpec
from queue_operator.queue.service import QueueService
from queue_operator.settings import QueueSettings
from queue_operator.testing.clauses import proves

TTL_S = 5.0


class Slow(MemoryBackend):
    """Answers heartbeats when it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.let = asyncio.Event(), asyncio.Event()

    async def extend_leases(self, held: Sequence[Held], *, lease_ttl_s: float) -> list[LeaseAnswer]:
        answers = await super().extend_leases(held, lease_ttl_s=lease_ttl_s)
        if held:
            self.asked.set()
            await self.let.wait()
        return answers


async def test_an_outcome_that_overtakes_the_answer_to_a_heartbeat_leaves_the_worker_trusted(
    clock: ManualClock,
) -> None:
    backend = Slow()
    queue = QueueService(backend, QueueSettings(lease_ttl_s=TTL_S), clock=clock)
    await queue.start()
    stream = await queue.open_stream(StreamSpec(assignee_id="w", capacity=1))
    await queue.enqueue_job(Job(id="a", type="t"))
    push = await stream.next()
    assert push is not None
    stream.delivered(push)
    [job] = push.assignments
    stream.slots.report([(job.namespace, job.job_id)])
    clock.now_s += TTL_S
    stream.forget_silence(TTL_S)
    assert not stream.accepting
    # It wakes up, says what it holds, and is done with it, before it hears anything.
    beating = asyncio.create_task(stream.heartbeat([Held(job.job_id, job.token, job.namespace)]))
    await backend.asked.wait()
    outcome = Outcome(job.job_id, Event.COMPLETE, job.namespace, job.token, worker_plane=True)
    [settled] = await stream.settle([outcome])
    assert settled.error is None
    backend.let.set()
    await beating
    for _ in range(8):
        clock.now_s += TTL_S / 4
        stream.forget_silence(TTL_S)
    assert stream.accepting
    assert not stream.slots.busy
    await queue.close()


@proves("queue-api.Sessions.rule.6")
async def test_a_worker_that_says_nothing_of_its_jobs_for_half_a_lease_gets_no_more_until_it_does(
    clock: ManualClock,
) -> None:
    queue = QueueService(MemoryBackend(), QueueSettings(lease_ttl_s=TTL_S), clock=clock)
    await queue.start()
    stream = await queue.open_stream(StreamSpec(assignee_id="w", capacity=4))

    async def given(job_id: str) -> bool:
        """Whether a job that is submitted now is given to the worker."""
        await queue.enqueue_job(Job(id=job_id, type="t"))
        await queue.keeper.reconcile()
        for _ in range(200):
            await asyncio.sleep(0)
        return (await queue.get_job(job_id)).state is JobState.RUNNING

    assert await given("first")
    held = await take(stream, 1)
    clock.now_s = TTL_S * 0.5
    assert await given("within half of a lease")
    held += await take(stream, 1)
    clock.now_s = TTL_S * 0.51
    await queue.keeper.reconcile()
    assert not await given("afterwards")
    clock.now_s = TTL_S * 0.9
    assert not await given("for as long as it is silent")
    # It speaks, and goes on speaking: after a silence one word alone may be an old one.
    for _ in range(2):
        await stream.heartbeat([Held(job.job_id, job.token, job.namespace) for job in held])
        clock.now_s += TTL_S / 3
    assert {job.job_id for job in await take(stream, 2)} == {
        "afterwards",
        "for as long as it is silent",
    }
    assert await given("next") is False, "it has room for four"
    await queue.close()
