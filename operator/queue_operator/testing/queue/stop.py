"""StopJob and StopJobWithRetry."""

from queue_operator.domain.states import JobState
from queue_operator.testing.clauses import proves
from queue_operator.testing.queue import checks
from queue_operator.testing.queue.desk import Desk

_FROM = (JobState.RUNNING, JobState.CANCELLING, JobState.UNKNOWN_RETRY)
_CANCELLING = JobState.CANCELLING


async def stop(desk: Desk, job_id: str) -> None:
    await desk.calls.stop_job(job_id, "enough")


async def stop_with_retry(desk: Desk, job_id: str) -> None:
    await desk.calls.stop_job_with_retry(job_id, "broke while stopping")


@proves("queue-api.StopJob.pre.2")
async def test_stop_needs_an_id(desk: Desk) -> None:
    await checks.needs_an_id(desk, stop)


@proves(
    "queue-api.StopJob.move.1",
    "queue-api.StopJob.move.2",
    "queue-api.StopJob.post.1",
    "queue-api.StopJob.expect.3",
    "queue-api.StopJob.expect.5",
)
async def test_stop_moves_by_the_table(desk: Desk) -> None:
    await checks.moves(desk, stop, JobState.STOPPED, *_FROM)


@proves(
    "queue-api.StopJob.pre.3",
    "queue-api.StopJob.post.2",
    "queue-api.StopJob.expect.1",
    "queue-api.StopJob.expect.2",
)
async def test_stop_keeps_the_message_even_an_empty_one(desk: Desk) -> None:
    told, silent = await desk.jobs_in(JobState.RUNNING, JobState.RUNNING)
    await stop(desk, told.id)
    await desk.calls.stop_job(silent.id, "")
    for job, message in ((told, "enough"), (silent, "")):
        stored = await desk.get(job)
        assert (stored.state, stored.error_message) == (JobState.STOPPED, message)
        assert stored.finalized_at is not None


@proves("queue-api.StopJob.post.3")
async def test_stop_ends_the_job_now(desk: Desk) -> None:
    await checks.ends_now(desk, stop, *_FROM)


@proves("queue-api.StopJob.post.4", "queue-api.StopJob.expect.4")
async def test_stop_keeps_the_assignment(desk: Desk) -> None:
    await checks.keeps_the_assignment(desk, stop, *_FROM)


@proves("queue-api.StopJob.post.5", "queue-api.StopJob.effect.2")
async def test_stop_frees_the_slot_of_the_stream_that_had_the_job(desk: Desk) -> None:
    await checks.frees_one(desk, stop, JobState.RUNNING, _CANCELLING)


@proves("queue-api.StopJob.move.3")
async def test_stop_too_late_frees_nothing(desk: Desk) -> None:
    await checks.frees_nothing_late(desk, stop, JobState.UNKNOWN_RETRY)


@proves("queue-api.StopJob.post.6")
async def test_stop_refused_frees_no_slot(desk: Desk) -> None:
    await checks.refused_for_nothing(desk, stop, JobState.COMPLETED)


@proves("queue-api.StopJob.effect.1")
async def test_stop_is_for_ever(desk: Desk) -> None:
    await checks.is_never_given_again(desk, stop, *_FROM)


@proves("queue-api.StopJobWithRetry.pre.2")
async def test_stop_with_retry_needs_an_id(desk: Desk) -> None:
    await checks.needs_an_id(desk, stop_with_retry)


@proves(
    "queue-api.StopJobWithRetry.pre.3",
    "queue-api.StopJobWithRetry.move.1",
    "queue-api.StopJobWithRetry.post.1",
    "queue-api.StopJobWithRetry.expect.4",
    "queue-api.StopJobWithRetry.expect.6",
)
async def test_stop_with_retry_moves_by_the_table(desk: Desk) -> None:
    await checks.moves(desk, stop_with_retry, JobState.STOPPED, _CANCELLING)


@proves(
    "queue-api.StopJobWithRetry.post.2",
    "queue-api.StopJobWithRetry.post.3",
    "queue-api.StopJobWithRetry.post.4",
    "queue-api.StopJobWithRetry.expect.2",
    "queue-api.StopJobWithRetry.expect.3",
)
async def test_stop_with_retry_counts_a_retry_and_keeps_the_message(desk: Desk) -> None:
    begin = await desk.now()
    one = (await checks.applied(desk, stop_with_retry, _CANCELLING))[_CANCELLING]
    assert one.after.error_message == "broke while stopping"
    assert (one.before.retry_count, one.after.retry_count) == (0, 1)
    assert one.before.last_retry_at is None
    assert one.after.last_retry_at is not None
    assert begin < one.after.last_retry_at < await desk.now()
    assert one.after.finalized_at is not None


@proves("queue-api.StopJobWithRetry.post.5", "queue-api.StopJobWithRetry.expect.1")
async def test_stop_with_retry_ends_the_job_now(desk: Desk) -> None:
    await checks.ends_now(desk, stop_with_retry, _CANCELLING)
    one = (await checks.applied(desk, stop_with_retry, _CANCELLING))[_CANCELLING]
    # One step: the state table knows no step between.
    assert one.after.transition == one.before.transition + 1
    assert one.after.finalized_at == one.after.last_retry_at


@proves("queue-api.StopJobWithRetry.post.6", "queue-api.StopJobWithRetry.expect.5")
async def test_stop_with_retry_keeps_the_assignment(desk: Desk) -> None:
    await checks.keeps_the_assignment(desk, stop_with_retry, _CANCELLING)


@proves("queue-api.StopJobWithRetry.post.7", "queue-api.StopJobWithRetry.effect.2")
async def test_stop_with_retry_frees_the_slot_of_the_stream(desk: Desk) -> None:
    await checks.frees_one(desk, stop_with_retry, _CANCELLING)


@proves("queue-api.StopJobWithRetry.post.8")
async def test_stop_with_retry_refused_frees_no_slot(desk: Desk) -> None:
    await checks.refused_for_nothing(desk, stop_with_retry, JobState.RUNNING)


@proves("queue-api.StopJobWithRetry.effect.1")
async def test_stop_with_retry_is_for_ever(desk: Desk) -> None:
    await checks.is_never_given_again(desk, stop_with_retry, _CANCELLING)
