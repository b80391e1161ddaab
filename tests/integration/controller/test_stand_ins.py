"""QueueJobs whose idempotency key belongs to a job of somebody else."""

import json
from functools import partial

import pytest
from tests.integration.controller.conftest import Stage, StartStage

from queue_operator.domain.errors import JobNotFound
from queue_operator.domain.job import Job
from queue_operator.domain.retry import DEFAULT_BACKOFF
from queue_operator.domain.states import JobState


async def submitted(stage: Stage, team: str, payload: object = 1) -> str:
    """As through REST, under the key that the resources of these tests have."""
    job = Job(
        id=f"{team}-first",
        type="t",
        namespace=team,
        payload=json.dumps(payload).encode(),
        content_type="application/json",
        max_attempts=0,
        backoff=DEFAULT_BACKOFF,
        idempotency_key="once",
    )
    return await stage.backend.enqueue_job(job)


def shows(stage: Stage, team: str, state: JobState) -> bool:
    return bool(stage.api.status("j", team).get("state") == state)


async def test_it_follows_the_job_to_its_end(start: StartStage, team: str) -> None:
    stage = await start()
    job_id = await submitted(stage, team)
    body = stage.api.make("j", team, idempotencyKey="once")
    await stage.see(body)
    assert await stage.stored(team) == 1
    looks = [
        (JobState.INITIAL_PENDING, None),
        (JobState.RUNNING, stage.take(team, 1)),
        (JobState.COMPLETED, stage.backend.complete_job(job_id, b"7", namespace=team)),
    ]
    for state, step in looks:
        if step is not None:
            await step
        await stage.intake.stand_ins.once()
        await stage.until(partial(shows, stage, team, state))
    status = stage.api.status("j", team)
    assert (status["jobId"], status["finished"]) == (job_id, True)
    assert status["observedGeneration"] == 1
    assert len(stage.intake.stand_ins) == 0
    writes = stage.api.writes["j"]
    await stage.intake.stand_ins.once()
    assert stage.api.writes["j"] == writes == 3


async def test_deleting_it_cancels_nothing(start: StartStage, team: str) -> None:
    stage = await start()
    job_id = await submitted(stage, team)
    body = stage.api.make("j", team, idempotencyKey="once", cancel=True)
    await stage.see(body)
    del stage.api.objects[team, "j"]
    await stage.see(body, gone=True)
    await stage.resync.once()
    job = await stage.backend.get_job(job_id, namespace=team)
    assert job.state is JobState.INITIAL_PENDING
    assert len(stage.intake.stand_ins) == 0


async def test_the_comparison_leaves_it_alone(start: StartStage, team: str) -> None:
    stage = await start()
    await submitted(stage, team)
    await stage.see(stage.api.make("j", team, idempotencyKey="once"))
    for _ in range(3):
        await stage.resync.once()
    assert stage.stats.resync_repairs == 0
    assert stage.api.reads.total() == 0


async def test_after_a_restart_it_stands_in_again(start: StartStage, team: str) -> None:
    stage = await start()
    job_id = await submitted(stage, team)
    body = stage.api.make("j", team, idempotencyKey="once")
    await stage.see(body)
    again = await start()
    await again.see(body)
    await again.intake.stand_ins.once()
    await again.until(lambda: stage.api.status("j", team).get("jobId") == job_id)
    assert await again.stored(team) == 1


async def test_other_content_under_the_key_is_refused(start: StartStage, team: str) -> None:
    stage = await start()
    job_id = await submitted(stage, team)
    body = stage.api.make("j", team, idempotencyKey="once", payload=2)
    fine = stage.api.make("fine", team)
    await stage.see(fine, body)
    await stage.until(lambda: stage.api.status("j", team).get("finished") is True)
    assert stage.api.accepted("j", team) == "False Duplicate"
    assert stage.api.status("j", team)["message"] == (
        f"spec.idempotencyKey: 'once' belongs to job {job_id!r} with other content; "
        "use a new key for new content"
    )
    assert await stage.stored(team) == 2


async def test_a_job_that_is_deleted_before_its_end_was_seen_is_told_of(
    start: StartStage, team: str
) -> None:
    stage = await start()
    job_id = await submitted(stage, team)
    body = stage.api.make("j", team, idempotencyKey="once")
    await stage.see(body)
    await stage.backend.cancel_jobs((), [job_id], namespace=team)
    await stage.backend.delete_jobs((), [job_id], namespace=team)
    await stage.intake.stand_ins.once()
    await stage.until(lambda: stage.api.status("j", team).get("finished") is True)
    assert stage.api.status("j", team)["reason"] == "JobDeleted"
    with pytest.raises(JobNotFound):
        await stage.backend.get_job(str(body["metadata"]["uid"]), namespace=team)
