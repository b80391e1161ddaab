"""UpdateJobStatus."""

from typing import Any, Final

import pytest

from queue_operator.domain.errors import (
    InvalidArgument,
    InvalidTransition,
    JobNotFound,
    StaleLease,
)
from queue_operator.domain.job import Job
from queue_operator.domain.states import JobState
from queue_operator.testing.breaking import job_call_cancelled, needs_the_store, shape
from queue_operator.testing.clauses import proves
from queue_operator.testing.driving import claim, job_in, running, submitted
from queue_operator.testing.store import Contract, Store
from queue_operator.testing.table import LEGAL_PAIRS, SLOT_HOLDING, TERMINAL

# Nothing leads into RUNNING, for that would be a run without a token. That only a skipped job
# may be retried from UNSCHEDULED is a rule of RETRY_NOW: here a pair is all that counts.
_PAIRS: Final = sorted(pair for pair in LEGAL_PAIRS if pair[1] is not JobState.RUNNING)


@proves(
    "backend-api.UpdateJobStatus.pre.1",
    "backend-api.UpdateJobStatus.error.4",
    "backend-api.UpdateJobStatus.must.1",
)
async def test_update_job_status_cancelled(backend: Contract) -> None:
    await job_call_cancelled(
        backend,
        JobState.RUNNING,
        lambda job: backend.update_job_status(job.id, JobState.STOPPED, b"r", "m"),
    )


@proves("backend-api.UpdateJobStatus.pre.2")
async def test_update_job_status_without_an_id(backend: Contract) -> None:
    with pytest.raises(InvalidArgument) as raised:
        await backend.update_job_status("", JobState.STOPPED)
    assert raised.value.field == "job_id"


@proves("backend-api.UpdateJobStatus.pre.3", "backend-api.UpdateJobStatus.error.1")
async def test_update_job_status_that_is_not_stored(backend: Contract) -> None:
    job = await submitted(backend, namespace="here")
    for job_id, namespace in (("missing", "here"), (job.id, "default")):
        with pytest.raises(JobNotFound):
            await backend.update_job_status(job_id, JobState.UNSCHEDULED, namespace=namespace)
    await backend.update_job_status(job.id, JobState.UNSCHEDULED, namespace="here")


@proves(
    "backend-api.UpdateJobStatus.pre.4",
    "backend-api.UpdateJobStatus.post.1",
    "backend-api.UpdateJobStatus.post.6",
    "backend-api.UpdateJobStatus.expect.1",
    "backend-api.UpdateJobStatus.must.5",
)
@pytest.mark.parametrize(("before", "after"), _PAIRS)
async def test_update_job_status_makes_each_change_of_the_table(
    backend: Contract, before: JobState, after: JobState
) -> None:
    job, _ = await job_in(backend, before)
    first = await backend.get_job(job.id)
    await backend.update_job_status(job.id, after)
    second = await backend.get_job(job.id)
    assert (second.state, second.transition) == (after, first.transition + 1)
    assert (second.assignee_id, second.assigned_at) == (first.assignee_id, first.assigned_at)
    assert (second.retry_count, second.last_retry_at) == (first.retry_count, first.last_retry_at)
    assert second.failure_count == first.failure_count


@proves(
    "backend-api.UpdateJobStatus.post.9",
    "backend-api.UpdateJobStatus.error.2",
    "backend-api.UpdateJobStatus.must.2",
    "backend-api.UpdateJobStatus.must.6",
)
@pytest.mark.parametrize("before", JobState)
async def test_update_job_status_refuses_every_other_change(
    backend: Contract, before: JobState
) -> None:
    job, _ = await job_in(backend, before)
    first = await backend.get_job(job.id)
    for after in JobState:
        if (before, after) in _PAIRS:
            continue
        with pytest.raises(InvalidTransition) as raised:
            await backend.update_job_status(job.id, after, b"r", "m")
        assert (raised.value.job_id, raised.value.state) == (job.id, before)
    assert await backend.get_job(job.id) == first


@proves("backend-api.UpdateJobStatus.error.2")
@pytest.mark.parametrize("status", ["STOPPED!", "", None, 7])
async def test_update_job_status_to_what_is_no_state(backend: Contract, status: Any) -> None:
    job, _ = await running(backend)
    with pytest.raises(InvalidArgument) as raised:
        await backend.update_job_status(job.id, status)
    assert raised.value.field == "status"
    assert (await backend.get_job(job.id)).state is JobState.RUNNING


@proves("backend-api.UpdateJobStatus.post.4", "backend-api.UpdateJobStatus.must.4")
@pytest.mark.parametrize(
    "state", [JobState.INITIAL_PENDING, JobState.FAILED_RETRY, JobState.UNKNOWN_RETRY]
)
async def test_update_job_status_never_makes_a_run(backend: Contract, state: JobState) -> None:
    job, _ = await job_in(backend, state)
    before = await backend.get_job(job.id)
    with pytest.raises(InvalidTransition):
        await backend.update_job_status(job.id, JobState.RUNNING)
    after = await backend.get_job(job.id)
    assert after == before
    assert after.started_at == before.started_at


@proves("backend-api.UpdateJobStatus.post.2", "backend-api.UpdateJobStatus.must.3")
@pytest.mark.parametrize("result", [None, b"", b"new"])
async def test_update_job_status_stores_a_result_if_there_is_one(
    backend: Contract, result: bytes | None
) -> None:
    job, _ = await running(backend)
    await backend.update_job_status(job.id, JobState.UNKNOWN_STOPPED, b"old")
    assert (await backend.get_job(job.id)).result == b"old"
    await backend.update_job_status(job.id, JobState.COMPLETED, result)
    assert (await backend.get_job(job.id)).result == (b"old" if result is None else result)


async def _with_result(backend: Contract, state: JobState) -> Job:
    """A job that got a result and a message on its way into `state`."""
    job = await submitted(backend)
    if state is not JobState.UNSCHEDULED:
        first = await claim(backend, job)
        await backend.update_job_status(
            job.id, JobState.FAILED_RETRY, b"old", "old", token=first.token
        )
        await claim(backend, job)
    if state is not JobState.RUNNING:
        await backend.update_job_status(job.id, state, b"old", "old")
    return job


@proves("backend-api.UpdateJobStatus.post.2", "backend-api.UpdateJobStatus.post.3")
@pytest.mark.parametrize(
    ("before", "after"), [pair for pair in _PAIRS if pair[0] is not JobState.INITIAL_PENDING]
)
async def test_update_job_status_without_a_result_leaves_the_stored_one_alone(
    backend: Contract, before: JobState, after: JobState
) -> None:
    job = await _with_result(backend, before)
    await backend.update_job_status(job.id, after)
    stored = await backend.get_job(job.id)
    assert (stored.state, stored.result, stored.error_message) == (after, b"old", "old")
    assert stored.result_content_type == "application/octet-stream"


@proves("backend-api.UpdateJobStatus.post.3", "backend-api.UpdateJobStatus.must.3")
@pytest.mark.parametrize("message", ["", "new"])
async def test_update_job_status_stores_a_message_if_there_is_one(
    backend: Contract, message: str
) -> None:
    job, token = await running(backend)
    await backend.fail_job(job.id, "old", token=token)
    await claim(backend, job)
    await backend.update_job_status(job.id, JobState.STOPPED, None, message)
    assert (await backend.get_job(job.id)).error_message == (message or "old")


@proves("backend-api.UpdateJobStatus.post.5", "backend-api.UpdateJobStatus.must.4")
@pytest.mark.parametrize(("before", "after"), _PAIRS)
async def test_update_job_status_sets_the_end(
    backend: Contract, before: JobState, after: JobState
) -> None:
    job, _ = await job_in(backend, before)
    first = await backend.get_job(job.id)
    await backend.update_job_status(job.id, after)
    second = await backend.get_job(job.id)
    if after not in TERMINAL:
        assert second.finalized_at is None
        return
    assert second.finalized_at == second.updated_at
    # Set anew by a late success, which is the only end that may follow another.
    assert first.finalized_at is None or after is JobState.COMPLETED


@proves(
    "backend-api.UpdateJobStatus.post.7",
    "backend-api.UpdateJobStatus.post.8",
    "backend-api.UpdateJobStatus.effect.2",
    "backend-api.Invariants.rule.8",
    "backend-api.UpdateJobStatus.must.7",
)
@pytest.mark.parametrize(("before", "after"), _PAIRS)
async def test_update_job_status_frees_the_slot(
    backend: Contract, before: JobState, after: JobState
) -> None:
    job, _ = await job_in(backend, before)
    freed = await backend.update_job_status(job.id, after)
    if before in SLOT_HOLDING and after in TERMINAL:
        # An acknowledgement that it was not executing is told by its own call only.
        assert freed == {"worker-1": 1}
    else:
        assert freed == {}


@proves("backend-api.UpdateJobStatus.effect.1")
async def test_update_job_status_shows_at_once(backend: Contract) -> None:
    job, _ = await running(backend)
    await backend.update_job_status(job.id, JobState.COMPLETED, b"r")
    assert (await backend.get_job(job.id)).state is JobState.COMPLETED
    stats = await backend.get_job_stats([])
    assert (stats.completed_jobs, stats.running_jobs) == (1, 0)


@proves("backend-api.UpdateJobStatus.error.3")
async def test_update_job_status_without_the_store(backend: Contract, store: Store) -> None:
    job, _ = await running(backend)
    before = await shape(backend, job)
    await needs_the_store(
        store, backend, lambda: backend.update_job_status(job.id, JobState.STOPPED)
    )
    assert await shape(backend, job) == before


async def test_update_job_status_is_fenced(backend: Contract) -> None:
    job, token = await running(backend)
    with pytest.raises(StaleLease):
        await backend.update_job_status(job.id, JobState.STOPPED, token="another")  # noqa: S106
    freed = await backend.update_job_status(job.id, JobState.STOPPED, token=token)
    assert freed == {"worker-1": 1}


async def test_update_job_status_into_retry_can_be_claimed(backend: Contract) -> None:
    job, token = await running(backend)
    await backend.update_job_status(job.id, JobState.FAILED_RETRY)
    again = await claim(backend, job, "worker-2")
    assert again.token != token
    assert (await backend.get_job(job.id)).assignee_id == "worker-2"


async def test_update_job_status_ends_what_waits_for_it(backend: Contract) -> None:
    parents = [(await running(backend))[0] for _ in range(2)]
    children = [await submitted(backend, depends_on=(parent.id,)) for parent in parents]
    await backend.update_job_status(parents[0].id, JobState.COMPLETED)
    await backend.update_job_status(parents[1].id, JobState.STOPPED)
    assert not (await backend.get_job(children[0].id)).waiting_for_dependencies
    assert (await backend.get_job(children[1].id)).state is JobState.UNSCHEDULED


async def test_update_job_status_of_a_skipped_job(backend: Contract) -> None:
    parent, _ = await job_in(backend, JobState.STOPPED)
    child = await submitted(backend, depends_on=(parent.id,))
    await backend.update_job_status(child.id, JobState.FAILED_RETRY)
    assert (await claim(backend, child)).job_id == child.id


@proves("backend-api.UpdateJobStatus.post.2", "backend-api.UpdateJobStatus.post.3")
async def test_update_job_status_stores_both_on_the_way_to_cancelling(backend: Contract) -> None:
    job, token = await running(backend)
    await backend.update_job_status(job.id, JobState.CANCELLING, b"half", "asked to stop")
    stored = await backend.get_job(job.id)
    assert (stored.result, stored.error_message) == (b"half", "asked to stop")
    await backend.stop_job(job.id, "stopped", token=token)
    assert (await backend.get_job(job.id)).error_message == "stopped"


async def test_update_job_status_out_of_the_dead_letters(backend: Contract) -> None:
    job, token = await running(backend, max_attempts=1)
    await backend.fail_job(job.id, "boom", token=token)
    await backend.update_job_status(job.id, JobState.FAILED_RETRY)
    back = await backend.get_job(job.id)
    assert (back.finalized_at, back.result, back.max_attempts) == (None, None, 2)
    assert (await claim(backend, job, "worker-2")).attempt == 2


@pytest.mark.parametrize("lost", [False, True])
async def test_update_job_status_into_retry_gives_an_attempt_where_none_is_left(
    backend: Contract, lost: bool
) -> None:
    job, _ = await running(backend, max_attempts=1)
    if lost:
        await backend.update_job_status(job.id, JobState.UNKNOWN_RETRY)
    await backend.update_job_status(job.id, JobState.FAILED_RETRY)
    assert (await backend.get_job(job.id)).max_attempts == 2
    assert (await claim(backend, job, "worker-2")).attempt == 2


@pytest.mark.parametrize("bound", [None, 0, 2])
async def test_update_job_status_into_retry_leaves_attempts_that_are_left(
    backend: Contract, bound: int | None
) -> None:
    job, _ = await running(backend, max_attempts=bound)
    before = await backend.get_job(job.id)
    await backend.update_job_status(job.id, JobState.FAILED_RETRY)
    assert (await backend.get_job(job.id)).max_attempts == before.max_attempts
    assert (await claim(backend, job, "worker-2")).attempt == 2


# What can end an attempt, and so may have been told already.
_ENDS: Final = sorted(
    pair for pair in _PAIRS if pair[0] in SLOT_HOLDING and pair[1] is not JobState.CANCELLING
)


@pytest.mark.parametrize(("before", "after"), _ENDS)
async def test_update_job_status_told_again_changes_nothing(
    backend: Contract, before: JobState, after: JobState
) -> None:
    job, token = await job_in(backend, before)
    await backend.update_job_status(job.id, after, b"first", "first", token=token)
    stored = await shape(backend, job)
    assert await backend.update_job_status(job.id, after, b"second", "second", token=token) == {}
    assert await shape(backend, job) == stored


@pytest.mark.parametrize(("before", "after"), _ENDS)
async def test_update_job_status_without_a_token_is_no_repeat(
    backend: Contract, before: JobState, after: JobState
) -> None:
    job, _ = await job_in(backend, before)
    await backend.update_job_status(job.id, after)
    stored = await shape(backend, job)
    if (after, after) in _PAIRS:
        # A manual retry of what waits for another attempt already.
        await backend.update_job_status(job.id, after)
        assert await shape(backend, job) != stored
    else:
        with pytest.raises(InvalidTransition):
            await backend.update_job_status(job.id, after)
        assert await shape(backend, job) == stored


async def test_update_job_status_told_again_after_another_claim(backend: Contract) -> None:
    job, token = await running(backend)
    await backend.update_job_status(job.id, JobState.FAILED_RETRY, token=token)
    await claim(backend, job, "worker-2")
    stored = await shape(backend, job)
    assert await backend.update_job_status(job.id, JobState.FAILED_RETRY, token=token) == {}
    with pytest.raises(StaleLease):
        await backend.update_job_status(job.id, JobState.STOPPED, token=token)
    assert await shape(backend, job) == stored


async def test_update_job_status_to_another_end_is_no_repeat(backend: Contract) -> None:
    job, token = await running(backend)
    await backend.update_job_status(job.id, JobState.UNKNOWN_RETRY, token=token)
    freed = await backend.update_job_status(job.id, JobState.UNKNOWN_STOPPED, token=token)
    assert (freed, (await backend.get_job(job.id)).state) == ({}, JobState.UNKNOWN_STOPPED)
    with pytest.raises(InvalidTransition):
        await backend.update_job_status(job.id, JobState.STOPPED, token=token)
    await backend.update_job_status(job.id, JobState.COMPLETED, b"r", token=token)
    assert await backend.update_job_status(job.id, JobState.COMPLETED, b"s", token=token) == {}
    assert (await backend.get_job(job.id)).result == b"r"


@pytest.mark.parametrize("result", [None, b"", b"r"])
async def test_update_job_status_gives_a_result_the_usual_type(
    backend: Contract, result: bytes | None
) -> None:
    job, _ = await running(backend)
    await backend.update_job_status(job.id, JobState.COMPLETED, result)
    stored = await backend.get_job(job.id)
    assert (stored.result, stored.result_content_type) == (result, "application/octet-stream")
