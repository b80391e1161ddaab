"""What handlers do beside returning a result, in worker processes on a real server."""

import asyncio
import json
import signal
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.integration.worker.conftest import LEASE_TTL_S
from tests.waiting import DEADLINE_S

from queue_operator.backends.protocol import AttemptLog
from queue_operator.domain.job import Job
from queue_operator.domain.states import JobState
from queue_operator.testing.clauses import proves

PROGRAMS = Path(__file__).with_name("programs")


@pytest.fixture
def start(start_worker: Any) -> Any:
    """Starts a worker process with the handlers of `programs/plane.py`."""
    return lambda name, **settings: start_worker(
        name, program="plane:worker", folder=PROGRAMS, **settings
    )


async def reported(operator: Any, job_id: str, percent: int) -> Job:
    """The job once its handler has said that it is so far."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            job: Job = await operator.queue.get_job(job_id, namespace=operator.namespace)
            if job.progress is not None and job.progress.percent == percent:
                return job


@pytest.mark.parametrize("kind", ["resume", "resume-async", "resume-process"])
@proves("external-api.JobContext.rule.10", "external-api.JobContext.rule.11")
async def test_a_job_goes_on_where_its_killed_worker_was(
    operator: Any, start: Any, kind: str
) -> None:
    first = start("w-1")
    job_id = await operator.submit(kind)
    await reported(operator, job_id, 50)
    first.kill()
    start("w-2")
    done = await operator.reached(job_id, JobState.COMPLETED)
    assert json.loads(done.result) == {"from": "half", "attempt": 2}


async def test_a_job_that_was_handed_back_goes_on_where_it_was(
    operator: Any, start: Any, ended: Any
) -> None:
    first = start("w-1", GRACE_S="0")
    job_id = await operator.submit("resume")
    await reported(operator, job_id, 50)
    first.send_signal(signal.SIGTERM)
    assert await ended(first) == 0
    start("w-2")
    done = await operator.reached(job_id, JobState.COMPLETED)
    # Handed back, the first attempt does not count.
    assert json.loads(done.result) == {"from": "half", "attempt": 1}


async def ten_children(operator: Any, parent: Job) -> None:
    """Ten in sum, each run once, as the parent's last attempt names them."""
    numbers = []
    for child_id in json.loads(parent.result or b""):
        child = await operator.reached(child_id, JobState.COMPLETED)
        assert (child.spawned_by, child.correlation_id, child.attempt) == (parent.id, "order-7", 1)
        numbers.append(json.loads(child.result))
    assert numbers == list(range(10))
    stats = await operator.queue.get_job_stats([], namespace=operator.namespace)
    assert stats.total_jobs == 11


@pytest.mark.parametrize("kind", ["fan-out", "fan-out-async"])
async def test_a_parent_that_fails_half_way_has_its_children_once(
    operator: Any, start: Any, kind: str
) -> None:
    start("w-1")
    parent = await operator.submit(kind, b'"fail"', correlation_id="order-7", max_attempts=2)
    await ten_children(operator, await operator.reached(parent, JobState.COMPLETED))


@pytest.mark.parametrize("kind", ["fan-out", "fan-out-async"])
@proves("external-api.JobContext.rule.12")
async def test_a_parent_whose_worker_is_killed_half_way_has_its_children_once(
    operator: Any, start: Any, kind: str
) -> None:
    first = start("w-1")
    parent = await operator.submit(kind, b'"wait"', correlation_id="order-7")
    await reported(operator, parent, 50)
    first.kill()
    start("w-2")
    done = await operator.reached(parent, JobState.COMPLETED)
    assert done.attempt == 2
    # A child may have been running on the killed worker, and runs again.
    for child_id in json.loads(done.result):
        await operator.reached(child_id, JobState.COMPLETED)
    stats = await operator.queue.get_job_stats([], namespace=operator.namespace)
    assert stats.total_jobs == 11


@proves("external-api.JobContext.rule.13")
async def test_what_a_handler_logs_is_kept_by_attempt(operator: Any, start: Any) -> None:
    start("w-1")
    job_id = await operator.submit("talk", max_attempts=2)
    done = await operator.reached(job_id, JobState.COMPLETED)
    logs = await log_of(operator, job_id, lines=6)
    assert [(log.version, log.number, log.dropped) for log in logs] == [(1, 1, 0), (2, 2, 0)]
    for log in logs:
        assert [(one.number, one.level, one.message, one.fields) for one in log.lines] == [
            (n + 1, "INFO", f"line {n}", f'{{"number":{n}}}') for n in range(3)
        ]
        assert done.created_at <= log.lines[0].at <= log.lines[-1].at


async def test_what_a_handler_logs_is_there_while_it_runs_and_after_its_worker_died(
    operator: Any, start: Any
) -> None:
    worker = start("w-1")
    job_id = await operator.submit("talk-and-hang")
    [log] = await log_of(operator, job_id, lines=1)
    assert [(one.level, one.message) for one in log.lines] == [("WARNING", "still here")]
    worker.kill()
    start("w-2")
    await operator.reached(job_id, JobState.RUNNING, attempt=2)
    first, second = await log_of(operator, job_id, lines=2)
    assert (first, second.number) == (log, 2)


async def log_of(operator: Any, job_id: str, *, lines: int) -> list[AttemptLog]:
    """The log once it has that many lines: nobody waits for them but whoever reads them."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            logs: list[AttemptLog] = await operator.queue.backend.job_log(
                job_id, namespace=operator.namespace
            )
            if sum(len(log.lines) for log in logs) >= lines:
                return logs


@proves("external-api.HandlerRegistration.expect.4")
async def test_what_cannot_be_stored_ends_its_job_and_no_other(operator: Any, start: Any) -> None:
    start("w-1")
    kinds = ("object", "circle", "nan", "deep", "large", "keys")
    jobs = {
        await operator.submit("unserialisable", json.dumps(kind).encode(), max_attempts=3): kind
        for kind in kinds
    }
    for job_id, kind in jobs.items():
        dead = await operator.reached(job_id, JobState.DEAD_LETTER, JobState.COMPLETED)
        assert (kind, dead.error and dead.error.code) == (kind, "RESULT_NOT_STORABLE")
        # Trying again would not change it.
        assert (dead.state, dead.attempt) == (JobState.DEAD_LETTER, 1)
    after = await operator.submit("page", b'{"number": 7}')
    assert (await operator.reached(after, JobState.COMPLETED)).result == b"7"


@proves("external-api.WorkerProcess.expect.1")
async def test_a_handler_that_blocks_the_loop_for_three_lease_times_keeps_its_job(
    operator: Any, start: Any
) -> None:
    start("w-1")
    start("w-2")
    job_id = await operator.submit("block-the-loop", json.dumps(3.2 * LEASE_TTL_S).encode())
    done = await operator.reached(job_id, JobState.COMPLETED)
    history = await operator.queue.backend.get_history(job_id, namespace=operator.namespace)
    assert (done.result, done.attempt, len(history.attempts)) == (b"1", 1, 1)
    assert done.finalized_at - done.assigned_at > timedelta(seconds=3 * LEASE_TTL_S)


@proves("external-api.JobContext.expect.1")
async def test_the_largest_checkpoint_is_stored_and_a_larger_one_never_sent(
    operator: Any, start: Any
) -> None:
    start("w-1")
    job_id = await operator.submit("large-checkpoint")
    done = await operator.reached(job_id, JobState.COMPLETED)
    assert json.loads(done.result) == 5 * 1024 * 1024
