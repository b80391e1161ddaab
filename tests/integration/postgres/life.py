"""Everything that can be asked of the store, once."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime

from queue_operator.backends.postgres import PostgresBackend
from queue_operator.backends.protocol import (
    CheckpointReport,
    FailureSearch,
    JobSearch,
    LogLine,
    LogReport,
    ProgressReport,
    SpawnRequest,
    Topic,
    WorkerSession,
)
from queue_operator.domain.dependencies import DependencyMode
from queue_operator.domain.job import Demand, Job, Progress, ResourceRef
from queue_operator.domain.lease import Held
from queue_operator.domain.outcome import Outcome
from queue_operator.domain.states import Event, JobState
from queue_operator.testing.driving import a_job, apply, job_in, running, submitted

TTL_S = 60.0


async def live_a_whole_life(backend: PostgresBackend) -> None:
    jobs = {state: (await job_in(backend, state))[0] for state in JobState}
    await _submit_in_every_way(backend)
    await _run(backend)
    await _stop(backend)
    await _read(backend, jobs)
    await _serve_resources(backend)
    await _serve_workers(backend)
    await _clean_up(backend, jobs)


async def _submit_in_every_way(backend: PostgresBackend) -> None:
    key = a_job(idempotency_key="key")
    assert await backend.enqueue_job(key) == await backend.enqueue_job(
        Job(id="again", type=key.type, idempotency_key="key")
    )
    # As many as are copied.
    await backend.enqueue_jobs([a_job() for _ in range(300)])
    parent = await submitted(backend)
    child = a_job(depends_on=(parent.id,), dependency_mode=DependencyMode.CHAIN)
    await backend.enqueue_job(child)
    demand = Demand(assignee_id="w", limit=1, types=frozenset({parent.type}))
    [taken] = await backend.claim([demand], lease_ttl_s=TTL_S)
    outcome = Outcome(parent.id, Event.COMPLETE, token=taken.token, result=b"for the child")
    await backend.settle([outcome])
    demand = Demand(assignee_id="w", limit=1, types=frozenset({child.type}))
    [taken] = await backend.claim([demand], lease_ttl_s=TTL_S)
    assert taken.job_id == child.id
    delayed = a_job(delay_s=0.001)
    await backend.enqueue_job(delayed)
    assert await backend.dequeue_jobs("w", [], 1000)


async def _run(backend: PostgresBackend) -> None:
    job, token = await running(backend)
    held = Held(job.id, token)
    await backend.extend_leases([held], lease_ttl_s=TTL_S)
    await backend.record_progress(
        [
            ProgressReport(
                job_id=job.id, token=token, progress=Progress(50, "half", datetime.now(UTC))
            )
        ]
    )
    await _say_more(backend, job, token)
    await backend.expire_leases(lease_ttl_s=TTL_S)
    await backend.fail_job(job.id, "no route", token=token)
    dead, _ = await job_in(backend, JobState.DEAD_LETTER)
    assert (await apply(backend, dead, Event.RETRY_NOW)).error is None


async def _say_more(backend: PostgresBackend, job: Job, token: str) -> None:
    for number in (1, 2):
        kept = CheckpointReport(job_id=job.id, token=token, number=number, data=b"half")
        assert [answer.error for answer in await backend.store_checkpoints([kept])] == [None]
    child = SpawnRequest(parent_id=job.id, token=token, key="1", job=Job(id="", type="child"))
    assert [answer.error for answer in await backend.spawn([child])] == [None]
    line = LogLine(number=1, at=datetime.now(UTC), level="INFO", message="hello")
    await backend.append_logs([LogReport(job_id=job.id, token=token, lines=(line,))])
    assert len(await backend.job_log(job.id)) == 1


async def _stop(backend: PostgresBackend) -> None:
    job, token = await running(backend)
    await backend.cancel_jobs([], [job.id], force=True, reason="not needed")
    await backend.pending_cancels(["worker-1"])
    await backend.confirm_cancels([Held(job.id, token)])
    await backend.acknowledge_cancellation(job.id, True, token=token)
    await running(backend)
    assert await backend.mark_worker_unresponsive("worker-1")
    await running(backend)
    assert await backend.reset_running_jobs()
    late, token = await running(backend)
    await backend.mark_job_unknown_stopped(late.id, "who knows", token=token)
    await backend.complete_job(late.id, b"after all", token=token)


async def _read(backend: PostgresBackend, jobs: Mapping[JobState, Job]) -> None:
    assert ((await backend.search_jobs(JobSearch())).total_count or 0) > len(jobs)
    assert (await backend.search_failures(FailureSearch())).jobs
    for job in jobs.values():
        await backend.get_job(job.id)
        await backend.get_history(job.id)
    assert (await backend.get_job_stats([])).total_jobs > len(jobs)
    assert await backend.read_events()
    assert (await backend.queue_depth()).jobs
    await backend.ping()


async def _serve_resources(backend: PostgresBackend) -> None:
    job = a_job()
    job = replace(job, resource=ResourceRef("cluster", job.id, "name"))
    await backend.take_in([job])
    pending = await backend.pending_mirrors()
    await backend.acknowledge_mirrors([entry.sequence for entry in pending])
    assert await backend.attached("cluster")
    await backend.detach([job.id])


async def _serve_workers(backend: PostgresBackend) -> None:
    session = WorkerSession(session_id="s", namespace="default", worker_name="w")
    await backend.open_session(session)
    await backend.touch_sessions([session])
    assert await backend.list_sessions()
    await backend.close_sessions(["s"])
    async for news in backend.listen():
        assert news.keys() <= frozenset(Topic)
        break


async def _clean_up(backend: PostgresBackend, jobs: Mapping[JobState, Job]) -> None:
    assert await backend.delete_jobs([], [jobs[JobState.STOPPED].id]) == 1
    assert await backend.cleanup_expired_jobs(0.000001) > 0
