"""The running REST door, and how tests move jobs behind it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import psycopg

from queue_operator.backends.postgres import PostgresBackend
from queue_operator.domain.job import Job
from queue_operator.domain.outcome import ErrorInfo, Outcome
from queue_operator.domain.states import Event
from queue_operator.queue.service import QueueService
from queue_operator.settings import Quota

EVENTS = "text/event-stream; charset=utf-8"
TOKEN = "a-token-for-tests"
READER, SUBMITTER, MANAGER = "reads", "submits", "manages"
QUOTAS = {
    "few-waiting": Quota(pending_jobs=3),
    "few-at-once": Quota(pending_jobs=3),
    "repeated": Quota(pending_jobs=3, submissions_per_s=0.01, submissions_burst=4),
    "one-running": Quota(running_jobs=1),
    "slow": Quota(submissions_per_s=0.01, submissions_burst=2),
    "small": Quota(payload_bytes_per_s=1, payload_bytes_burst=100),
}
"""By namespace, each of one test."""
CALLERS = [
    {"name": "reader", "token": READER, "scopes": ["read"], "namespaces": ["*"]},
    {"name": "submitter", "token": SUBMITTER, "scopes": ["submit"], "namespaces": ["*"]},
    {"name": "manager", "token": MANAGER, "scopes": ["manage"], "namespaces": ["*"]},
]


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

    async def told(self, method: str, path: str, body: Any = None, **params: Any) -> Any:
        """What a call that succeeds answers."""
        answer = await self.call(method, path, body, **params)
        assert answer.is_success, answer.text
        return answer.json() if answer.content else None

    async def call_as(
        self, token: str | None, method: str, path: str, body: Any = None
    ) -> httpx.Response:
        """A call with another token, None for none. Of a stream of events nothing is read."""
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        params = {"namespace": self.namespace}
        async with (
            httpx.AsyncClient(base_url=self.url, headers=headers) as http,
            http.stream(method, path, json=body, params=params) as answer,
        ):
            if answer.headers["content-type"] != EVENTS:
                await answer.aread()
            return answer

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

    async def settled(
        self, job_id: str, event: Event, error: ErrorInfo | None = None, result: bytes = b""
    ) -> None:
        """Ends the running attempt of the job."""
        outcome = Outcome(job_id, event, self.namespace, result=result, error=error)
        (answer,) = await self.backend.settle([outcome])
        assert answer.error is None, answer.error

    async def failed(self, error: ErrorInfo, **fields: Any) -> str:
        """A job that was submitted, ran and failed for good."""
        job_id = await self.submitted(**fields)
        await self.claimed(job_id)
        await self.settled(job_id, Event.EXHAUST, error)
        return job_id

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
        more = set(detail) - {"field", "code", "message"}
        assert len(detail) == len(more) + 3
        assert not more or "job_id" in more, detail
        assert more <= {"job_id", "state", "event"}, detail
        assert detail["code"]
        assert detail["message"]
    return error
