"""AcknowledgeCancellation."""

from queue_operator.domain.states import JobState
from queue_operator.testing.clauses import proves
from queue_operator.testing.queue import checks
from queue_operator.testing.queue.desk import Desk

_CANCELLING = JobState.CANCELLING


async def stopped(desk: Desk, job_id: str) -> None:
    await desk.calls.acknowledge_cancellation(job_id, True)


async def not_mine(desk: Desk, job_id: str) -> None:
    await desk.calls.acknowledge_cancellation(job_id, False)


@proves("queue-api.AcknowledgeCancellation.pre.2")
async def test_acknowledge_needs_an_id(desk: Desk) -> None:
    await checks.needs_an_id(desk, stopped)


@proves(
    "queue-api.AcknowledgeCancellation.post.1",
    "queue-api.AcknowledgeCancellation.pre.3",
    "queue-api.AcknowledgeCancellation.expect.2",
    "queue-api.AcknowledgeCancellation.expect.4",
)
async def test_acknowledge_of_an_executing_job_moves_by_the_table(desk: Desk) -> None:
    await checks.moves(desk, stopped, JobState.STOPPED, _CANCELLING)


@proves("queue-api.AcknowledgeCancellation.post.4", "queue-api.AcknowledgeCancellation.expect.1")
async def test_acknowledge_of_an_unknown_job_moves_by_the_table(desk: Desk) -> None:
    await checks.moves(desk, not_mine, JobState.UNKNOWN_STOPPED, _CANCELLING)
    one = (await checks.applied(desk, not_mine, _CANCELLING))[_CANCELLING]
    assert one.after.transition == one.before.transition + 1


@proves("queue-api.AcknowledgeCancellation.post.2", "queue-api.AcknowledgeCancellation.post.5")
async def test_acknowledge_ends_the_job_now(desk: Desk) -> None:
    await checks.ends_now(desk, stopped, _CANCELLING)
    await checks.ends_now(desk, not_mine, _CANCELLING)


@proves("queue-api.AcknowledgeCancellation.post.7", "queue-api.AcknowledgeCancellation.expect.3")
async def test_acknowledge_keeps_the_assignment(desk: Desk) -> None:
    await checks.keeps_the_assignment(desk, stopped, _CANCELLING)
    await checks.keeps_the_assignment(desk, not_mine, _CANCELLING)


@proves("queue-api.AcknowledgeCancellation.post.3")
async def test_acknowledge_of_an_executing_job_frees_its_slot(desk: Desk) -> None:
    await checks.frees_one(desk, stopped, _CANCELLING)


@proves("queue-api.AcknowledgeCancellation.post.6", "queue-api.Slots.rule.4")
async def test_acknowledge_of_an_unknown_job_frees_its_slot_by_comparison(desk: Desk) -> None:
    stream, [job] = await desk.holding(1)
    [following] = await desk.submit()
    await checks.ready(desk, _CANCELLING, job)
    await not_mine(desk, job.id)
    stream.start()
    await desk.compare_later(stream)
    await desk.rig.tick()
    assert (await stream.one()).id == following.id


@proves("queue-api.AcknowledgeCancellation.effect.2")
async def test_acknowledge_lets_the_next_job_in_only_if_this_one_ran(desk: Desk) -> None:
    stream, [one, two] = await desk.holding(2)
    following = await desk.submit(2)
    for job in (one, two):
        await checks.ready(desk, _CANCELLING, job)
    await not_mine(desk, one.id)
    await desk.compare_later(stream.start())
    await stopped(desk, two.id)
    # On another replica the comparison that finds the second slot finds the first one too.
    assert {job.id for job in await stream.batch()} <= {job.id for job in following}


@proves("queue-api.AcknowledgeCancellation.post.8")
async def test_acknowledge_refused_frees_no_slot(desk: Desk) -> None:
    await checks.refused_for_nothing(desk, stopped, JobState.RUNNING)
    await checks.refused_for_nothing(desk, not_mine, JobState.STOPPED)


@proves("queue-api.AcknowledgeCancellation.effect.1")
async def test_acknowledge_is_for_ever(desk: Desk) -> None:
    await checks.is_never_given_again(desk, stopped, _CANCELLING)
    await checks.is_never_given_again(desk, not_mine, _CANCELLING)
