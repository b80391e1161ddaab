"""The REST API as a caller sees it, and a worker behind it."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from queue_operator.domain.job import Assignment, Demand
from queue_operator.domain.outcome import ErrorCategory, ErrorInfo, Outcome, Settled
from queue_operator.domain.states import Event
from queue_operator.queue.service import QueueService
from queue_operator.testing.store import TTL_S, Contract, Store

Document = dict[str, Any]


@dataclass
class Api:
    """Everything happens in `namespace`, which no other test uses. Calls check the status of
    their answer, by default that it is a success.
    """

    http: httpx.AsyncClient
    queue: QueueService
    backend: Contract
    store: Store
    namespace: str

    async def call(
        self, method: str, path: str, body: Any = None, *, status: int = 200, **params: Any
    ) -> Any:
        answer = await self.http.request(
            method, f"/v1{path}", json=body, params={"namespace": self.namespace, **params}
        )
        assert answer.status_code == status, answer.text
        return answer.json() if answer.content else None

    async def get(self, path: str, *, status: int = 200, **params: Any) -> Any:
        return await self.call("GET", path, status=status, **params)

    async def post(self, path: str, body: Any = None, *, status: int = 200, **params: Any) -> Any:
        return await self.call("POST", path, body, status=status, **params)

    async def submit(self, *, status: int = 201, **fields: Any) -> Any:
        return await self.post("/jobs", {"type": "t", "payload": 1, **fields}, status=status)

    async def submitted(self, **fields: Any) -> str:
        answer = await self.submit(**fields)
        return str(answer["job_id"])

    async def status(self, job_id: str, **params: Any) -> Document:
        shown: Document = await self.get(f"/jobs/{job_id}", **params)
        return shown

    async def state(self, job_id: str) -> str:
        return str((await self.status(job_id))["state"])

    async def faults(
        self, method: str, path: str, body: Any = None, *, status: int = 400, **params: Any
    ) -> dict[str, str]:
        """The faulty fields of a refused call, and what is said of each."""
        error = await self.call(method, path, body, status=status, **params)
        return {detail["field"]: detail["message"] for detail in error["details"]}

    async def refused(self, **fields: Any) -> list[str]:
        """The faulty fields of a submission."""
        body = {"type": "t", "payload": 1, **fields}
        return sorted(await self.faults("POST", "/jobs", body))

    # A worker

    async def claim(
        self, limit: int = 1, *, types: Sequence[str] = (), worker: int = 1
    ) -> list[Assignment]:
        demand = Demand(
            assignee_id=f"session-{worker}",
            limit=limit,
            namespace=self.namespace,
            types=frozenset(types),
            worker_name=f"worker-{worker}",
            host=f"host-{worker}",
        )
        return await self.backend.claim([demand], lease_ttl_s=TTL_S)

    async def start(self, *, worker: int = 1) -> Assignment:
        [assignment] = await self.claim(worker=worker)
        return assignment

    async def later(self, seconds: float) -> None:
        """Time passes, and what is due by then can be claimed."""
        await self.store.age(seconds)
        await self.backend.dequeue_jobs("nobody", ["no such tag"], 1, namespace=self.namespace)

    async def settle(self, run: Assignment, event: Event, **fields: Any) -> Settled:
        outcome = Outcome(
            run.job_id, event, self.namespace, token=run.token, worker_plane=True, **fields
        )
        [answer] = await self.backend.settle([outcome])
        assert answer.error is None
        return answer

    async def complete(self, output: bytes = b"{}") -> Assignment:
        """Runs the next job."""
        run = await self.start()
        await self.settle(
            run, Event.COMPLETE, result=output, result_content_type="application/json"
        )
        return run

    async def fail(
        self, category: ErrorCategory = ErrorCategory.TEMPORARY, **error: Any
    ) -> Assignment:
        """Runs the next job into a failure."""
        run = await self.start()
        told = ErrorInfo("boom", category, **{"code": "E1", **error})
        event = Event.EXHAUST if category is ErrorCategory.PERMANENT else Event.FAIL
        await self.settle(run, event, error=told)
        return run

    async def failed_for_good(self, **fields: Any) -> str:
        """A job whose only attempt is used up."""
        job_id = await self.submitted(max_attempts=1, **fields)
        await self.fail()
        return job_id


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()
