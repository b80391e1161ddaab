"""What a stopped handler costs its job and the next one: docs/guides/stopping-handlers.md."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.integration.worker.conftest import LEASE_TTL_S
from tests.waiting import DEADLINE_S

from queue_operator.domain.job import Job
from queue_operator.domain.outcome import ErrorCategory
from queue_operator.domain.states import JobState

PROGRAMS = Path(__file__).with_name("programs")


@pytest.fixture
def start(start_worker: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Starts a worker process with the handlers of `programs/stopping.py`."""
    monkeypatch.setenv("STOPPING_FOLDER", str(tmp_path))
    return lambda **settings: start_worker(
        "w", program="stopping:worker", folder=PROGRAMS, **settings
    )


def begun(folder: Path, job_id: str) -> list[str]:
    """The processes in which the job's handler has begun."""
    return (folder / f"begun-{job_id}").read_text().split()


def is_there(pid: str) -> bool:
    """Whether there is such a process."""
    return Path("/proc", pid).exists()


async def until(operator: Any, job_id: str, right: Any) -> Job:
    """The job once that is right."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            job: Job = await operator.queue.get_job(job_id, namespace=operator.namespace)
            if right(job):
                return job


async def test_a_stuck_function_costs_one_attempt_and_its_slot(
    operator: Any, start: Any, tmp_path: Path
) -> None:
    start(CAPACITY="2")
    job_id = await operator.submit("thread", timeout_s=1.0, max_attempts=2)
    # One attempt timed out; the next ones were handed back, again and again.
    job = await until(operator, job_id, lambda job: job.retry_count >= 4)
    assert job.failure_count == 1
    assert job.error is not None
    assert job.error.category is ErrorCategory.TIMEOUT
    assert len(begun(tmp_path, job_id)) == 1
    # The other slot serves others meanwhile.
    for _ in range(3):
        await operator.reached(await operator.submit("quick"), JobState.COMPLETED)
    (tmp_path / "gate").touch()
    done = await operator.reached(job_id, JobState.COMPLETED)
    assert (done.attempt, done.failure_count, done.result) == (2, 1, b"2")
    assert len(begun(tmp_path, job_id)) == 2


async def test_the_only_slot_of_a_worker_is_taken_until_the_function_returns(
    operator: Any, start: Any, tmp_path: Path
) -> None:
    start(CAPACITY="1")
    job_id = await operator.submit("thread", timeout_s=1.0, max_attempts=1)
    await operator.reached(job_id, JobState.DEAD_LETTER)
    # Until two heartbeats have named the job, others may still be let in.
    left = await first_left_waiting(operator)
    (tmp_path / "gate").touch()
    assert (await operator.reached(left, JobState.COMPLETED)).attempt == 1


async def first_left_waiting(operator: Any) -> str:
    """The first of a row of quick jobs that does not run soon."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            job_id: str = await operator.submit("quick")
            try:
                async with asyncio.timeout(2 * LEASE_TTL_S):
                    await operator.reached(job_id, JobState.COMPLETED)
            except TimeoutError:
                return job_id


@pytest.mark.parametrize("kind", ["coroutine", "process"])
async def test_what_can_be_ended_costs_one_attempt_and_frees_its_slot(
    operator: Any, start: Any, tmp_path: Path, kind: str
) -> None:
    start(CAPACITY="1")
    # A process takes a while to come up, and its timeout counts from the assignment.
    job_id = await operator.submit(kind, timeout_s=8.0, max_attempts=2)
    await operator.progressed(job_id, "begun")
    done = await operator.reached(job_id, JobState.COMPLETED)
    assert (done.attempt, done.failure_count, done.result) == (2, 1, b"2")
    first, second = begun(tmp_path, job_id)
    assert (first == second) is (kind == "coroutine")
    assert is_there(first) is (kind == "coroutine")
    await operator.reached(await operator.submit("quick"), JobState.COMPLETED)
