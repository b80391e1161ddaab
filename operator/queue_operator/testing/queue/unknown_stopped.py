"""MarkJobUnknownStopped."""

from queue_operator.domain.states import JobState
from queue_operator.testing.clauses import proves
from queue_operator.testing.queue import checks
from queue_operator.testing.queue.desk import Desk

_FROM = (JobState.RUNNING, JobState.CANCELLING, JobState.UNKNOWN_RETRY)
_THERE = JobState.UNKNOWN_STOPPED


async def mark(desk: Desk, job_id: str) -> None:
    await desk.calls.mark_job_unknown_stopped(job_id, "nobody knows")


@proves("queue-api.MarkJobUnknownStopped.pre.2")
async def test_mark_unknown_needs_an_id(desk: Desk) -> None:
    await checks.needs_an_id(desk, mark)


@proves(
    "queue-api.MarkJobUnknownStopped.move.1",
    "queue-api.MarkJobUnknownStopped.move.3",
    "queue-api.MarkJobUnknownStopped.post.1",
)
async def test_mark_unknown_moves_by_the_table(desk: Desk) -> None:
    for state, one in (await checks.applied(desk, mark)).items():
        if state in _FROM:
            assert (one.after.state, one.refused) == (_THERE, False)
        else:
            assert one.refused == (state is not _THERE)
            assert one.after == one.before


@proves(
    "queue-api.MarkJobUnknownStopped.post.2",
    "queue-api.MarkJobUnknownStopped.expect.1",
    "queue-api.MarkJobUnknownStopped.expect.2",
)
async def test_mark_unknown_keeps_the_message(desk: Desk) -> None:
    for one in (await checks.applied(desk, mark, *_FROM)).values():
        assert one.after.error_message == "nobody knows"
        assert one.after.finalized_at is not None
        assert one.after.transition == one.before.transition + 1


@proves("queue-api.MarkJobUnknownStopped.post.3", "queue-api.MarkJobUnknownStopped.rule.1")
async def test_mark_unknown_ends_the_job_now_and_only_once(desk: Desk) -> None:
    await checks.ends_now(desk, mark, *_FROM)
    one = (await checks.applied(desk, mark, _THERE))[_THERE]
    assert one.before.finalized_at is not None
    assert one.after == one.before
    await checks.frees_nothing_late(desk, mark, _THERE)


@proves("queue-api.MarkJobUnknownStopped.post.4", "queue-api.MarkJobUnknownStopped.expect.4")
async def test_mark_unknown_keeps_the_assignment(desk: Desk) -> None:
    await checks.keeps_the_assignment(desk, mark, *_FROM)


@proves("queue-api.MarkJobUnknownStopped.post.5", "queue-api.MarkJobUnknownStopped.effect.2")
async def test_mark_unknown_frees_the_slot_of_the_stream(desk: Desk) -> None:
    await checks.frees_one(desk, mark, JobState.RUNNING, JobState.CANCELLING)


@proves("queue-api.MarkJobUnknownStopped.move.2")
async def test_mark_unknown_too_late_frees_nothing(desk: Desk) -> None:
    await checks.frees_nothing_late(desk, mark, JobState.UNKNOWN_RETRY)


@proves(
    "queue-api.MarkJobUnknownStopped.post.6",
    "queue-api.MarkJobUnknownStopped.expect.3",
    "queue-api.MarkJobUnknownStopped.expect.5",
)
async def test_mark_unknown_of_a_job_that_is_not_stored(desk: Desk) -> None:
    await checks.needs_a_job(desk, mark)


@proves("queue-api.MarkJobUnknownStopped.effect.1")
async def test_mark_unknown_ends_for_all_but_a_late_success(desk: Desk) -> None:
    await checks.is_never_given_again(desk, mark, *_FROM)
    job = await desk.job_in(JobState.RUNNING)
    await mark(desk, job.id)
    await desk.calls.complete_job(job.id, b"after all")
    assert await desk.state(job) is JobState.COMPLETED
