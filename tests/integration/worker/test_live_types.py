"""A handler that is registered while its worker is connected."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.programs import started
from tests.waiting import DEADLINE_S

from queue_operator.auth.open import OpenAuthenticator
from queue_operator.backends.memory import MemoryBackend
from queue_operator.domain.job import Job
from queue_operator.domain.states import JobState
from queue_operator.queue.service import QueueService
from queue_operator.rpc.server import WorkerPlaneServer
from queue_operator.settings import Settings
from queue_operator.testing.clauses import proves

HANDLERS = """
import threading
from queue_operator.worker import Worker

worker = Worker()
gate = threading.Event()

@worker.handler("register")
def register(ctx):
    worker.register("late", lambda ctx: "late", timeout="PT5M", max_attempts=7)
    worker.register("gated", lambda ctx: gate.wait(), concurrency=1)

@worker.handler("open")
def open_gate(ctx):
    gate.set()
"""


@pytest.fixture
async def queue(tmp_path: Path) -> AsyncIterator[QueueService]:
    """With one worker, a process of its own."""
    (tmp_path / "jobs.py").write_text(HANDLERS)
    service = QueueService(MemoryBackend())
    await service.start()
    plane = WorkerPlaneServer(service, OpenAuthenticator(), Settings())
    port = await plane.start(0)
    async with started(
        sys.executable,
        "-m",
        "queue_operator.worker.main",
        "jobs:worker",
        PYTHONPATH=os.pathsep.join([str(tmp_path), *sys.path]),
        QUEUE_OPERATOR_SERVER=f"127.0.0.1:{port}",
        QUEUE_OPERATOR_HEALTH_PORT="0",
    ):
        yield service
    await plane.stop()
    await service.close()


async def submit(queue: QueueService, type_: str, number: int = 0) -> str:
    job = Job(
        id=f"{type_}-{number}",
        type=type_,
        payload=b"",
        content_type="application/json",
        max_attempts=0,
    )
    return await queue.enqueue_job(job)


async def completed(queue: QueueService, job_id: str) -> Job:
    return await reached(queue, job_id, JobState.COMPLETED)


async def reached(queue: QueueService, job_id: str, state: JobState) -> Job:
    async with asyncio.timeout(DEADLINE_S):
        while True:
            job = await queue.get_job(job_id)
            if job.state is state:
                return job


@proves("external-api.HandlerRegistration.expect.10")
async def test_its_jobs_come_and_those_of_no_handler_do_not(queue: QueueService) -> None:
    nobodys, waiting = await submit(queue, "nobodys"), await submit(queue, "late")
    await completed(queue, await submit(queue, "register"))
    done = await completed(queue, waiting)
    assert (done.result, done.max_attempts) == (b'"late"', 7)
    assert (await queue.get_job(nobodys)).state is JobState.INITIAL_PENDING
    (usage,) = queue.usage()
    assert [handler.type for handler in usage.spec.types] == ["register", "open", "late", "gated"]


@proves("external-api.HandlerRegistration.rule.5")
async def test_its_concurrency_holds_from_its_first_job(queue: QueueService) -> None:
    """Of two the second waits, though the worker has ten slots."""
    jobs = [await submit(queue, "gated", number) for number in (1, 2)]
    await completed(queue, await submit(queue, "register"))
    await reached(queue, jobs[0], JobState.RUNNING)
    # Another type is served meanwhile: it is the limit that holds the second one back.
    await completed(queue, await submit(queue, "late"))
    assert (await queue.get_job(jobs[1])).state is JobState.INITIAL_PENDING
    await submit(queue, "open")
    for job_id in jobs:
        await completed(queue, job_id)
