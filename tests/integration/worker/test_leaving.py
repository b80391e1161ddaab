"""A worker's process that is told to go: what it finishes, what it hands back, and how it exits."""

import asyncio
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.waiting import until

from queue_operator.domain.states import JobState
from queue_operator.testing.clauses import proves

PROGRAMS = Path(__file__).parent / "programs"
GRACE_S = 6.0
"""Enough for a job that is let go at once, on a slow machine."""


async def begun(operator: Any, type: str, payload: str = "") -> str:
    job_id = str(await operator.submit(type, json.dumps(payload).encode()))
    await operator.progressed(job_id, "begun")
    return job_id


async def told_to_go(operator: Any, process: Any) -> None:
    """Sends the signal, and returns when the queue knows that the worker leaves."""
    process.send_signal(signal.SIGTERM)

    async def draining() -> bool:
        await operator.queue.ping()
        return all(usage.draining for usage in operator.queue.usage())

    await until(draining)


@proves("external-api.WorkerProcess.expect.2")
async def test_a_worker_that_is_told_to_go_finishes_what_it_can_and_hands_back_the_rest(
    operator: Any, start_worker: Callable[..., Any], ended: Any, tmp_path: Path
) -> None:
    process = start_worker(
        program="leaving:worker", folder=PROGRAMS, CAPACITY="5", GRACE_S=str(GRACE_S)
    )
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    finishing = await begun(operator, "gated", str(pipe))
    endless = await begun(operator, "endless")
    await told_to_go(operator, process)
    # It has room, and takes nothing any more.
    late = await operator.submit("quick")
    # Whoever opens it lets the job go on, which is within the grace.
    await asyncio.to_thread(pipe.write_text, "what it was to do")
    done = await operator.reached(finishing, JobState.COMPLETED)
    assert (json.loads(done.result), done.attempt) == ("what it was to do", 1)
    assert process.poll() is None, "the grace is not over, and one job still runs"
    running = await operator.queue.get_job(endless, namespace=operator.namespace)
    assert running.state is JobState.RUNNING
    assert await ended(process) == 0
    back = await operator.queue.get_job(endless, namespace=operator.namespace)
    assert (back.state, back.attempt, back.retry_count) == (JobState.FAILED_RETRY, 0, 1)
    untouched = await operator.queue.get_job(late, namespace=operator.namespace)
    assert (untouched.state, untouched.attempt) == (JobState.INITIAL_PENDING, 0)


@proves("external-api.WorkerProcess.expect.2")
async def test_a_worker_that_is_told_to_go_twice_hands_back_at_once(
    operator: Any, start_worker: Callable[..., Any], ended: Any, tmp_path: Path
) -> None:
    process = start_worker(program="leaving:worker", folder=PROGRAMS, CAPACITY="5", GRACE_S="3600")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    # One in a coroutine, and one in a thread, which nothing can interrupt.
    jobs = [await begun(operator, "endless"), await begun(operator, "gated", str(pipe))]
    await told_to_go(operator, process)
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    assert await ended(process) == 0
    for job_id in jobs:
        back = await operator.queue.get_job(job_id, namespace=operator.namespace)
        assert (back.state, back.attempt) == (JobState.FAILED_RETRY, 0)
