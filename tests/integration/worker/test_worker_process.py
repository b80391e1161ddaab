"""The example's worker from submission to outcome, and through what can go wrong."""

import json
import os
import signal
import subprocess
from typing import Any

from queue_operator.domain.states import JobState


async def test_every_way_that_a_job_goes(operator: Any, start_worker: Any) -> None:
    start_worker("w-1", CAPACITY="4")
    hello = await operator.submit("hello", b'{"name": "Ada"}')
    flaky = await operator.submit("flaky", b'{"fail_times": 1}', max_attempts=3)
    broken = await operator.submit("broken", max_attempts=2)
    wrong = await operator.submit("hello", b'{"name": 7}')
    where = await operator.submit("where")

    done = await operator.reached(hello, JobState.COMPLETED)
    assert json.loads(done.result) == {"greeting": "Hello, Ada!"}
    done = await operator.reached(flaky, JobState.COMPLETED)
    assert json.loads(done.result) == {"attempt": 2}
    dead = await operator.reached(broken, JobState.DEAD_LETTER)
    assert (dead.attempt, dead.error.code) == (2, "ValueError")
    assert "handlers.py" in dead.error.stack_trace
    dead = await operator.reached(wrong, JobState.DEAD_LETTER)
    assert (dead.attempt, dead.error.code) == (1, "INVALID_PAYLOAD")
    done = await operator.reached(where, JobState.COMPLETED)
    assert json.loads(done.result)["worker"] == "w-1"


async def test_a_cancel_stops_a_running_job(operator: Any, start_worker: Any) -> None:
    start_worker()
    for force in (False, True):
        job_id = await operator.submit("long", b'{"seconds": 3600}')
        await operator.reached(job_id, JobState.RUNNING)
        await operator.queue.cancel_jobs([], [job_id], namespace=operator.namespace, force=force)
        await operator.reached(job_id, JobState.STOPPED)


async def test_a_timeout_counts_as_an_attempt(operator: Any, start_worker: Any) -> None:
    start_worker()
    job_id = await operator.submit("long", b'{"seconds": 3600}', timeout_s=0.2, max_attempts=1)
    dead = await operator.reached(job_id, JobState.DEAD_LETTER)
    assert dead.error.code == "TIMEOUT"


async def test_sigterm_hands_back_and_another_worker_goes_on(
    operator: Any, start_worker: Any, ended: Any
) -> None:
    first = start_worker("w-1", GRACE_S="0")
    job_id = await operator.submit("where")
    await operator.reached(job_id, JobState.COMPLETED)
    job_id = await operator.submit("survivor", b'{"seconds": 3600}')
    await operator.reached(job_id, JobState.RUNNING)
    first.send_signal(signal.SIGTERM)
    assert await ended(first) == 0
    job = await operator.queue.get_job(job_id, namespace=operator.namespace)
    # Handed back, not lost: the attempt does not count.
    assert (job.state, job.attempt) == (JobState.FAILED_RETRY, 0)
    start_worker("w-2")
    again = await operator.reached(job_id, JobState.RUNNING)
    assert again.attempt == 1


def suspend_and_terminate(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
    process.send_signal(signal.SIGCONT)
    process.send_signal(signal.SIGTERM)


async def test_a_worker_that_was_suspended_hears_sigterm(
    operator: Any, start_worker: Any, ended: Any
) -> None:
    """The kernel then often delivers the signal to another thread than the main one."""
    workers = [start_worker(f"w-{number}", CAPACITY="1") for number in range(4)]
    jobs = [await operator.submit("long", b'{"seconds": 3600}') for _ in workers]
    for job_id in jobs:
        await operator.reached(job_id, JobState.RUNNING)
    await operator.queue.cancel_jobs([], jobs, namespace=operator.namespace)
    for job_id in jobs:
        await operator.reached(job_id, JobState.STOPPED)
    for worker in workers:
        suspend_and_terminate(worker)
    for worker in workers:
        assert await ended(worker) == 0


async def test_a_killed_worker_loses_its_job_to_another(operator: Any, start_worker: Any) -> None:
    first = start_worker("w-1")
    job_id = await operator.submit("survivor", b'{"seconds": 3600}')
    # Killed before it heard of the job it would not have begun it, and the attempt not count.
    await operator.progressed(job_id, "step 0 of 20")
    start_worker("w-2")
    first.kill()
    done = await operator.reached(job_id, JobState.COMPLETED)
    answer = json.loads(done.result)
    assert (answer["attempt"], answer["worker"]) == (2, "w-2")


async def test_a_restart_of_the_operator_costs_no_attempt(
    operator: Any, start_worker: Any, ended: Any
) -> None:
    process = start_worker()
    job_id = await operator.submit("long", b'{"seconds": 2}')
    await operator.reached(job_id, JobState.RUNNING)
    await operator.restart()
    done = await operator.reached(job_id, JobState.COMPLETED)
    assert done.attempt == 1
    process.send_signal(signal.SIGTERM)
    assert await ended(process) == 0


async def test_many_jobs_all_complete(operator: Any, start_worker: Any) -> None:
    for number in range(3):
        start_worker(f"w-{number}", CAPACITY="50")
    job_ids = [await operator.submit("noop") for _ in range(300)]
    for job_id in job_ids:
        done = await operator.reached(job_id, JobState.COMPLETED)
        assert done.attempt == 1
