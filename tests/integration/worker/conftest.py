"""Worker processes against the real server on a real PostgreSQL."""

import asyncio
import os
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Protocol

import pytest
from tests.conftest import migrated_database
from tests.waiting import DEADLINE_S

from queue_operator.auth.open import OpenAuthenticator
from queue_operator.backends.postgres import PostgresBackend
from queue_operator.domain.job import Job
from queue_operator.domain.states import JobState
from queue_operator.queue.service import QueueService
from queue_operator.rpc.server import WorkerPlaneServer
from queue_operator.settings import QueueSettings, Settings

EXAMPLE = Path(__file__).parents[3] / "examples" / "01-hello"
LEASE_TTL_S = 1.0


@pytest.fixture(scope="module")
def dsn(postgres_admin_dsn: str) -> Iterator[str]:
    with migrated_database(postgres_admin_dsn, "worker") as address:
        yield address


class Operator:
    """The queue and its worker plane in this process; `restart` is a new one on its port."""

    def __init__(self, dsn: str, namespace: str) -> None:
        self._dsn = dsn
        self.namespace = namespace
        self.port = 0

    async def start(self) -> None:
        settings = Settings(queue=QueueSettings(lease_ttl_s=LEASE_TTL_S))
        backend = await PostgresBackend.open(self._dsn)
        self.queue = QueueService(backend, settings.queue)
        await self.queue.start()
        self._plane = WorkerPlaneServer(self.queue, OpenAuthenticator(), settings)
        self.port = await self._plane.start(self.port)

    async def stop(self) -> None:
        await self._plane.stop()
        await self.queue.close()

    async def restart(self) -> None:
        await self.stop()
        await self.start()

    async def submit(self, type: str, payload: bytes = b"", **fields: object) -> str:
        job = Job(
            id=uuid.uuid4().hex,
            type=type,
            payload=payload,
            content_type="application/json",
            namespace=self.namespace,
            **fields,  # type: ignore[arg-type]
        )
        return await self.queue.enqueue_job(job)

    async def reached(self, job_id: str, *states: JobState, attempt: int = 0) -> Job:
        """The job once it is in one of the states and at that attempt or later."""
        job: Job | None = None
        try:
            async with asyncio.timeout(DEADLINE_S):
                while True:
                    job = await self.queue.get_job(job_id, namespace=self.namespace)
                    if job.state in states and job.attempt >= attempt:
                        return job
        except TimeoutError:
            pytest.fail(f"after {DEADLINE_S:g} s the job is {job and (job.state, job.attempt)}")

    async def progressed(self, job_id: str, message: str) -> None:
        """Returns once the job's handler has reported this."""
        async with asyncio.timeout(DEADLINE_S):
            while True:
                job = await self.queue.get_job(job_id, namespace=self.namespace)
                if job.progress is not None and job.progress.message == message:
                    return


@pytest.fixture
async def operator(dsn: str) -> AsyncIterator[Operator]:
    running = Operator(dsn, f"team-{uuid.uuid4().hex[:8]}")
    await running.start()
    yield running
    await running.stop()


Process = subprocess.Popen[bytes]


class StartWorker(Protocol):
    def __call__(
        self, name: str = ..., *, program: str = ..., folder: Path = ..., **environment: str
    ) -> Process: ...


@pytest.fixture
def start_worker(operator: Operator) -> Iterator[StartWorker]:
    """Starts `queue-worker`, with the handlers of the example unless told otherwise."""
    processes: list[Process] = []

    def start(
        name: str = "worker-1",
        *,
        program: str = "handlers:worker",
        folder: Path = EXAMPLE,
        **environment: str,
    ) -> Process:
        settings = {
            "SERVER": f"127.0.0.1:{operator.port}",
            "NAMESPACE": operator.namespace,
            "WORKER_NAME": name,
            "HEALTH_PORT": "0",
        } | environment
        process = subprocess.Popen(
            [sys.executable, "-m", "queue_operator.worker.main", program],
            cwd=folder,
            env=os.environ | {f"QUEUE_OPERATOR_{key}": value for key, value in settings.items()},
        )
        processes.append(process)
        return process

    yield start
    for process in processes:
        process.kill()
        process.wait()


Wait = Callable[[Process], Awaitable[int]]


@pytest.fixture
def ended() -> Wait:
    """The exit status of a process, once it has one."""

    async def wait(process: Process) -> int:
        try:
            return await asyncio.to_thread(process.wait, DEADLINE_S)
        except subprocess.TimeoutExpired:
            pytest.fail(f"the process still runs after {DEADLINE_S:g} s")

    return wait
