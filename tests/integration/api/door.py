"""The running REST door, and how tests move jobs behind it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import psycopg

from queue_operator.backends.postgres import PostgresBackend
from queue_operator.domain.job import Job
from queue_operator.queue.service import QueueService

TOKEN = "a-token-for-tests"


@dataclass(frozen=True)
class Door:
    """Everything happens in `namespace`, which no other test uses."""

    http: httpx.AsyncClient
    url: str
    probes: str
    queue: QueueService
    backend: PostgresBackend
    namespace: str
    admin_dsn: str
    dsn: str

    async def call(self, method: str, path: str, body: Any = None, **params: Any) -> httpx.Response:
        return await self.http.request(
            method, path, json=body, params={"namespace": self.namespace, **params}
        )

    async def send(self, path: str, content: Any, **headers: str) -> httpx.Response:
        """A POST of raw bytes as JSON, unless the headers say otherwise."""
        wanted = {"content-type": "application/json"}
        wanted |= {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.http.post(
            path, content=content, headers=wanted, params={"namespace": self.namespace}
        )

    async def submitted(self, **fields: Any) -> str:
        answer = await self.call("POST", "/v1/jobs", {"type": "t", "payload": 1, **fields})
        assert answer.status_code == 201, answer.text
        return str(answer.json()["job_id"])

    async def status(self, job_id: str, **params: Any) -> dict[str, Any]:
        answer = await self.call("GET", f"/v1/jobs/{job_id}", **params)
        assert answer.status_code == 200, answer.text
        shown: dict[str, Any] = answer.json()
        return shown

    async def stored(self, job_id: str) -> Job:
        return await self.queue.get_job(job_id, namespace=self.namespace)

    async def claimed(self, job_id: str) -> None:
        """Makes the job RUNNING, as `dequeue` does for a worker; it must be the only one."""
        (job,) = await self.backend.dequeue_jobs("worker", (), 1, namespace=self.namespace)
        assert job.id == job_id

    @contextmanager
    def outage(self) -> Iterator[None]:
        """The database refuses everybody; a superuser of another database does this."""
        name = psycopg.conninfo.conninfo_to_dict(self.dsn)["dbname"]
        with psycopg.connect(self.admin_dsn, autocommit=True) as admin:
            admin.execute(f'ALTER DATABASE "{name}" WITH ALLOW_CONNECTIONS false')
            admin.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,)
            )
            try:
                yield
            finally:
                admin.execute(f'ALTER DATABASE "{name}" WITH ALLOW_CONNECTIONS true')


def check_error(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """The answer is an APIError of this kind, and nothing else."""
    assert answer.status_code == status, answer.text
    error: dict[str, Any] = answer.json()
    assert set(error) == {"code", "message", "details", "request_id"}
    assert error["code"] == code
    assert error["message"]
    assert error["request_id"] == answer.headers["x-request-id"]
    for detail in error["details"]:
        assert set(detail) == {"field", "code", "message"}
        assert detail["code"]
        assert detail["message"]
    return error
