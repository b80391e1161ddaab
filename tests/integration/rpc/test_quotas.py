"""One quota for all doors: REST and gRPC of two replicas on one PostgreSQL."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import httpx
import pytest
from pydantic import SecretStr
from tests.waiting import DEADLINE_S

from queue_operator.api.app import create_app
from queue_operator.api.server import RestServer
from queue_operator.auth.factory import build
from queue_operator.backends.postgres import PostgresBackend
from queue_operator.client.grpc import GrpcQueue, Repeats
from queue_operator.domain.errors import QuotaExceeded
from queue_operator.domain.job import Job
from queue_operator.queue import quotas
from queue_operator.queue.service import QueueService
from queue_operator.rpc.server import WorkerPlaneServer
from queue_operator.settings import (
    AuthMode,
    AuthSettings,
    GrpcSettings,
    Quota,
    QuotaSettings,
    RestSettings,
    Settings,
)
from queue_operator.testing.clauses import proves

TOKEN = "of the tests"
Told = tuple[str, Any, Any] | None
"""Limit, usage and maximum where a quota is used up; None where the job was taken."""
Submit = Callable[[str], Awaitable[Told]]
OpenDoors = Callable[..., Awaitable[dict[str, Submit]]]


def _by_rest(http: httpx.AsyncClient) -> Submit:
    async def submit(namespace: str) -> Told:
        answer = await http.post(
            "/v1/jobs", json={"type": "t", "payload": 1}, params={"namespace": namespace}
        )
        if answer.status_code == 201:
            return None
        told = answer.json()
        assert (answer.status_code, told["code"]) == (429, "QUOTA_EXCEEDED")
        quota = told["quota"]
        return quota["limit"], quota["current"], quota["maximum"]

    return submit


def _by_grpc(client: GrpcQueue) -> Submit:
    async def submit(namespace: str) -> Told:
        try:
            await client.enqueue_job(Job(id=uuid.uuid4().hex, type="t", namespace=namespace))
        except QuotaExceeded as error:
            return error.limit, error.current, error.maximum
        return None

    return submit


@pytest.fixture
async def open_doors(dsn: str) -> AsyncIterator[OpenDoors]:
    async with AsyncExitStack() as stack:

        async def open_all(**quota: Any) -> dict[str, Submit]:
            settings = Settings(
                rest=RestSettings(host="127.0.0.1", port=0),
                grpc=GrpcSettings(host="127.0.0.1", port=0),
                auth=AuthSettings(mode=AuthMode.STATIC, tokens={"tests": SecretStr(TOKEN)}),
                quotas=QuotaSettings(default=Quota(**quota)),
            )
            doors: dict[str, Submit] = {}
            for replica in ("one", "other"):
                backend = await PostgresBackend.open(dsn)
                queue = QueueService(backend, settings.queue, quotas=settings.quotas)
                await queue.start()
                stack.push_async_callback(queue.close)
                authenticator, authorizer = build(settings.auth)
                rest = RestServer(
                    create_app(queue, authenticator, authorizer, settings), settings.rest
                )
                await rest.start()
                stack.push_async_callback(rest.stop)
                plane = WorkerPlaneServer(queue, authenticator, settings)
                port = await plane.start()
                stack.push_async_callback(plane.stop, 0.5)
                http = await stack.enter_async_context(
                    httpx.AsyncClient(
                        base_url=rest.url, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=60
                    )
                )
                # A refusal is told, and not tried again.
                once = Repeats(attempts=1)
                client = await stack.enter_async_context(
                    GrpcQueue(f"127.0.0.1:{port}", TOKEN, timeout_s=DEADLINE_S, repeats=once)
                )
                doors[f"REST of {replica}"] = _by_rest(http)
                doors[f"gRPC of {replica}"] = _by_grpc(client)
            return doors

        yield open_all


@proves("external-api.QuotaError.expect.2")
async def test_what_came_in_by_any_door_of_any_replica_counts_at_all_of_them(
    open_doors: OpenDoors, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Replicas may let in what others did within a count's time; here there is none.
    monkeypatch.setattr(quotas, "FRESH_S", 0.0)
    doors = await open_doors(pending_jobs=4)
    for name, submit in doors.items():
        assert await submit(namespace) is None, name
    for name, submit in doors.items():
        assert await submit(namespace) == ("pending_jobs", 4, 4), name
        assert await submit(f"{namespace}-else") is None, name


@proves("external-api.QuotaError.expect.2")
async def test_a_rate_is_that_of_all_doors_of_all_replicas(
    open_doors: OpenDoors, namespace: str
) -> None:
    doors = await open_doors(submissions_per_s=0.001, submissions_burst=8)
    answers = await asyncio.gather(
        *(submit(namespace) for _ in range(5) for submit in doors.values())
    )
    assert len(answers) == 20
    refused = [answer for answer in answers if answer is not None]
    assert len(refused) == 12
    assert {limit for limit, _, _ in refused} == {"submissions_per_s"}
    # Whichever door is asked next, nothing is left.
    for name, submit in doors.items():
        assert await submit(namespace) is not None, name
