"""Children of running jobs over the wire, message by message."""

from collections.abc import Callable
from typing import Any

from google.protobuf.duration_pb2 import Duration
from tests.integration.rpc.conftest import StartPlane

from queue_operator.domain.errors import (
    InvalidArgument,
    InvalidTransition,
    QuotaExceeded,
    StaleLease,
)
from queue_operator.domain.job import Job
from queue_operator.domain.outcome import Outcome
from queue_operator.domain.states import Event
from queue_operator.queue.service import QueueService
from queue_operator.settings import Quota
from queue_operator.testing.clauses import proves
from queue_operator.wire.v1 import worker_pb2 as pb

NewJobs = Callable[..., list[Job]]
Connect = Callable[..., Any]


async def spawn(worker: Any, *spawns: pb.Spawn) -> dict[str, pb.SpawnAnswer]:
    """The answers by key."""
    await worker.say(spawns=pb.SpawnBatch(spawns=spawns))
    answers = (await worker.hear_of("spawn_answers")).spawn_answers.answers
    assert len(answers) == len(spawns)
    return {answer.key: answer for answer in answers}


def of(parent: pb.Assignment, key: str, **fields: Any) -> pb.Spawn:
    job = pb.ChildJob(**({"type": "child"} | fields))
    return pb.Spawn(parent_id=parent.job_id, token=parent.token, key=key, job=job)


@proves("queue-api.WorkerPlane.rule.6")
async def test_a_child_is_stored_before_its_parent_hears_and_runs_at_once(
    queue: QueueService, connect: Connect, new_jobs: NewJobs, namespace: str
) -> None:
    worker = connect()
    welcome = await worker.hello()
    assert welcome.max_payload_bytes == 1024 * 1024
    await queue.enqueue_jobs(new_jobs(correlation_id="order-7"))
    [parent] = await worker.assignments(1)
    # The stream is asked for nothing else: the child itself wakes it.
    await worker.say(spawns=pb.SpawnBatch(spawns=[of(parent, "#1", payload=b"x", tags=["eu"])]))
    answer, child = None, None
    while answer is None or child is None:
        message = await worker.hear()
        answer = next(iter(message.spawn_answers.answers), answer)
        child = next(iter(message.assignments.assignments), child)
    assert (answer.parent_id, answer.token, answer.key) == (parent.job_id, parent.token, "#1")
    assert (child.job_id, child.type, child.payload) == (answer.job_id, "child", b"x")
    assert (child.correlation_id, list(child.tags)) == ("order-7", ["eu"])
    stored = await queue.get_job(child.job_id, namespace=namespace)
    assert (stored.spawned_by, stored.max_attempts) == (parent.job_id, 4)


@proves("external-api.JobContext.rule.12")
async def test_each_child_of_a_batch_gets_its_own_answer(
    queue: QueueService, connect: Connect, new_jobs: NewJobs
) -> None:
    worker = connect()
    await worker.hello(capacity=2)
    await queue.enqueue_jobs(new_jobs(2))
    parent, cancelled = await worker.assignments(2)
    await queue.cancel_jobs([], [cancelled.job_id], namespace=worker.namespace)
    stale = pb.Assignment(job_id=parent.job_id, token="00000000-0000-4000-8000-000000000000")
    answers = await spawn(
        worker,
        of(parent, "good"),
        of(parent, "priority", priority="URGENT"),
        of(parent, "type", type=""),
        of(stale, "stale"),
        of(cancelled, "cancelled"),
        of(parent, "twice"),
        of(parent, "also good"),
    )
    codes = {key: answer.error_code for key, answer in answers.items()}
    assert codes == {
        "good": "",
        "priority": InvalidArgument.code,
        "type": InvalidArgument.code,
        "stale": StaleLease.code,
        "cancelled": InvalidTransition.code,
        "twice": "",
        "also good": "",
    }
    assert answers["priority"].error_message.startswith("priority: ")
    again = await spawn(worker, of(parent, "twice"))
    assert again["twice"].job_id == answers["twice"].job_id
    stats = await queue.get_job_stats([], namespace=worker.namespace)
    assert stats.total_jobs == 5


async def test_the_next_attempt_gets_the_same_children_and_the_last_one_none(
    queue: QueueService, connect: Connect, new_jobs: NewJobs, namespace: str
) -> None:
    first, second = connect(), connect()
    await first.hello(capacity=1)
    await queue.enqueue_jobs(new_jobs())
    [old] = await first.assignments(1)
    before = await spawn(first, of(old, "#1", depends_on=[old.job_id]))
    lost = Outcome(old.job_id, Event.LOSE, namespace=namespace, token=old.token)
    await queue.backend.settle([lost])
    await second.hello()
    [new] = await second.assignments(1)
    late = await spawn(first, of(old, "#1"), of(old, "#2"))
    assert {answer.error_code for answer in late.values()} == {StaleLease.code}
    after = await spawn(second, of(new, "#1", depends_on=[new.job_id]))
    assert after["#1"].job_id == before["#1"].job_id
    assert (await queue.get_job_stats([], namespace=namespace)).total_jobs == 2


async def test_a_line_that_is_cut_before_the_answer_costs_no_second_child(
    queue: QueueService, connect: Connect, new_jobs: NewJobs, namespace: str
) -> None:
    """Whether the server had read the question or not."""
    worker = connect()
    await worker.hello(capacity=1)
    await queue.enqueue_jobs(new_jobs())
    [parent] = await worker.assignments(1)
    asked = [of(parent, f"#{number}", depends_on=[parent.job_id]) for number in range(5)]
    kept = pb.Checkpoint(job_id=parent.job_id, token=parent.token, number=1, data=b"half")
    await worker.say(spawns=pb.SpawnBatch(spawns=asked))
    await worker.say(checkpoints=pb.CheckpointBatch(checkpoints=[kept]))
    worker.call.cancel()
    again = connect(session_id=worker.session_id)
    held = pb.HeldJob(job_id=parent.job_id, token=parent.token)
    await again.hello(capacity=1, held=[held])
    first = await spawn(again, *asked)
    second = await spawn(again, *asked)
    assert {key: one.job_id for key, one in first.items()} == {
        key: one.job_id for key, one in second.items()
    }
    await again.say(checkpoints=pb.CheckpointBatch(checkpoints=[kept]))
    [ack] = (await again.hear_of("checkpoint_acks")).checkpoint_acks.acks
    assert ack.error_code == ""
    assert (await queue.get_job_stats([], namespace=namespace)).total_jobs == 6


async def test_children_are_admitted_as_what_callers_submit(
    start_plane: StartPlane, connect: Connect, new_jobs: NewJobs, namespace: str
) -> None:
    plane = await start_plane(quota=Quota(pending_jobs=3))
    worker = connect(port=plane.port)
    await worker.hello()
    await plane.queue.enqueue_jobs(new_jobs())
    [parent] = await worker.assignments(1)
    # Nobody takes these: they wait.
    asked = [of(parent, f"{n}", type="later", delay=Duration(seconds=3600)) for n in range(40)]
    answers = await spawn(worker, *asked)
    codes = [answers[f"{n}"].error_code for n in range(40)]
    assert codes == [""] * 3 + [QuotaExceeded.code] * 37
    assert "pending_jobs" in answers["3"].error_message
    refusal = answers["3"].quota
    assert (refusal.limit, refusal.current, refusal.maximum) == ("pending_jobs", 3, 3)
    assert refusal.retry_after.ToTimedelta().total_seconds() > 0
    assert not answers["0"].HasField("quota")
    stats = await plane.queue.get_job_stats([], namespace=namespace)
    assert stats.total_jobs == 1 + 3


async def test_a_chain_of_children_ends(
    start_plane: StartPlane, connect: Connect, new_jobs: NewJobs
) -> None:
    plane = await start_plane(quota=Quota(spawn_depth=2))
    worker = connect(port=plane.port)
    await worker.hello()
    await plane.queue.enqueue_jobs(new_jobs())
    [current] = await worker.assignments(1)
    for _ in range(2):
        await worker.say(spawns=pb.SpawnBatch(spawns=[of(current, "next")]))
        [current] = await worker.assignments(1)
    [answer] = (await spawn(worker, of(current, "next"))).values()
    assert answer.error_code == InvalidArgument.code
    assert answer.error_message.startswith("spawn_depth: ")
