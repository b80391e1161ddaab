"""CompleteJob."""

from queue_operator.domain.states import JobState
from queue_operator.testing.clauses import proves
from queue_operator.testing.queue import checks
from queue_operator.testing.queue.desk import Desk

_RESULT = bytes(range(256))
_FROM = (
    JobState.RUNNING,
    JobState.CANCELLING,
    JobState.UNKNOWN_RETRY,
    JobState.UNKNOWN_STOPPED,
)


async def complete(desk: Desk, job_id: str) -> None:
    await desk.calls.complete_job(job_id, _RESULT)


@proves("queue-api.CompleteJob.pre.2")
async def test_complete_needs_an_id(desk: Desk) -> None:
    await checks.needs_an_id(desk, complete)


@proves(
    "queue-api.CompleteJob.move.1",
    "queue-api.CompleteJob.move.2",
    "queue-api.CompleteJob.post.1",
    "queue-api.CompleteJob.expect.3",
    "queue-api.CompleteJob.expect.5",
)
async def test_complete_moves_by_the_table(desk: Desk) -> None:
    await checks.moves(desk, complete, JobState.COMPLETED, *_FROM)


@proves("queue-api.CompleteJob.post.2", "queue-api.CompleteJob.expect.2")
async def test_complete_stores_the_result(desk: Desk) -> None:
    for one in (await checks.applied(desk, complete, *_FROM)).values():
        assert one.before.result is None
        assert one.after.result == _RESULT
        assert one.after.finalized_at is not None


@proves("queue-api.CompleteJob.post.3")
async def test_complete_ends_the_job_now_even_a_second_time(desk: Desk) -> None:
    await checks.ends_now(desk, complete, *_FROM)


@proves("queue-api.CompleteJob.post.4", "queue-api.CompleteJob.expect.4")
async def test_complete_keeps_the_assignment(desk: Desk) -> None:
    await checks.keeps_the_assignment(desk, complete, *_FROM)


@proves(
    "queue-api.CompleteJob.post.5",
    "queue-api.CompleteJob.effect.2",
    "queue-api.CompleteJob.effect.3",
)
async def test_complete_frees_the_slot_of_the_stream_that_had_the_job(desk: Desk) -> None:
    await checks.frees_one(desk, complete, JobState.RUNNING, JobState.CANCELLING)


@proves("queue-api.CompleteJob.move.3", "queue-api.CompleteJob.move.4")
async def test_complete_too_late_frees_nothing(desk: Desk) -> None:
    await checks.frees_nothing_late(
        desk, complete, JobState.UNKNOWN_RETRY, JobState.UNKNOWN_STOPPED
    )


@proves("queue-api.CompleteJob.post.7")
async def test_complete_refused_frees_no_slot(desk: Desk) -> None:
    await checks.refused_for_nothing(desk, complete, JobState.STOPPED)


@proves("queue-api.CompleteJob.effect.1")
async def test_complete_is_for_ever(desk: Desk) -> None:
    await checks.is_never_given_again(desk, complete, *_FROM)


@proves("queue-api.CompleteJob.expect.1")
async def test_complete_by_racing_callers(desk: Desk) -> None:
    await checks.is_applied_once(desk, complete, JobState.RUNNING)


@proves("queue-api.CompleteJob.post.6")
async def test_complete_makes_each_stream_look_at_most_once(desk: Desk) -> None:
    stream, [held] = await desk.holding(1)
    [following] = await desk.submit()
    await desk.nothing_more(stream)
    before = desk.rig.looks(stream.assignee)
    await complete(desk, held.id)
    assert (await stream.one()).id == following.id
    await desk.settled()
    assert desk.rig.looks(stream.assignee) == before + 1


@proves("queue-api.CompleteJob.rule.2")
async def test_complete_lets_children_go(desk: Desk) -> None:
    stream, [parent] = await desk.holding(1, capacity=2)
    child = desk.job(depends_on=(parent.id,))
    await desk.calls.enqueue_job(child)
    await desk.nothing_more(stream)
    await complete(desk, parent.id)
    assert (await stream.one()).id == child.id
