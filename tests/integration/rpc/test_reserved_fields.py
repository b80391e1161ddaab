"""Who may submit may not say where its job stands in line, nor whose status it writes."""

import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from queue_operator.auth.scopes import ScopeAuthorizer
from queue_operator.auth.static import StaticAuthenticator
from queue_operator.auth.tokens_file import TokensFile
from queue_operator.client.grpc import GrpcQueue
from queue_operator.domain.errors import Forbidden, QueueError
from queue_operator.domain.job import Job, ResourceRef
from queue_operator.wire.status import error_from_wire
from queue_operator.wire.v1 import queue_pb2 as pb

TOKENS = """
tokens:
  - {name: app, token: app-token, scopes: [submit, read, manage], namespaces: [NAMESPACE]}
"""
ADMIN = "admin-token"
EARLY = datetime(2, 1, 1, tzinfo=UTC)

RESERVED: dict[str, dict[str, Any]] = {
    "created_at": {"created_at": EARLY},
    "resource": {"resource": ResourceRef("cluster", "uid", "someone-elses")},
}


@pytest.fixture
async def port(start_plane: Callable[..., Awaitable[Any]], tmp_path: Path, namespace: str) -> int:
    path = tmp_path / "tokens.yaml"
    path.write_text(TOKENS.replace("NAMESPACE", namespace))
    authenticator = StaticAuthenticator({"ops": SecretStr(ADMIN)}, TokensFile(path))
    plane = await start_plane(authenticator, ScopeAuthorizer())
    return int(plane.port)


@pytest.fixture
async def app(port: int) -> AsyncIterator[GrpcQueue]:
    async with GrpcQueue(f"127.0.0.1:{port}", "app-token") as client:
        yield client


@pytest.fixture
async def ops(port: int) -> AsyncIterator[GrpcQueue]:
    async with GrpcQueue(f"127.0.0.1:{port}", ADMIN) as client:
        yield client


def job(namespace: str, **fields: Any) -> Job:
    job_id = uuid.uuid4().hex
    if "resource" in fields:
        fields["resource"] = replace(fields["resource"], uid=job_id)
    return Job(id=job_id, type="t", namespace=namespace, **fields)


@pytest.mark.parametrize("field", RESERVED)
async def test_a_submitter_is_refused_by_the_name_of_the_field(
    app: GrpcQueue, ops: GrpcQueue, namespace: str, field: str
) -> None:
    forged = job(namespace, **RESERVED[field])
    with pytest.raises(Forbidden, match=f"^{field}: only who may update queuejobs/status"):
        await app.enqueue_job(forged)
    with pytest.raises(Forbidden, match=rf"^jobs\[1\]\.{field}: only who may"):
        await app.enqueue_jobs([job(namespace), forged])
    assert (await app.get_job_stats([], namespace=namespace)).total_jobs == 0
    await app.enqueue_jobs([job(namespace), job(namespace)])
    # An administrator may.
    await ops.enqueue_job(forged)
    stored = await ops.get_job(forged.id, namespace=namespace)
    assert getattr(stored, field) == getattr(forged, field)


async def test_what_others_submit_in_the_same_call_is_stored(
    app: GrpcQueue, namespace: str
) -> None:
    good = [pb.Job(id=uuid.uuid4().hex, type="t", namespace=namespace) for _ in range(2)]
    forged = pb.Job(id=uuid.uuid4().hex, type="t", namespace=namespace)
    forged.created_at.FromDatetime(EARLY)
    async with app._calls.line.call() as stub:
        answer = await stub.EnqueueEach(
            pb.EnqueueEachRequest(jobs=[good[0], forged, good[1]]),
            metadata=(("authorization", "Bearer app-token"),),
        )
    first, refused, last = answer.enqueued
    assert [first.job_id, last.job_id] == [one.id for one in good]
    error = error_from_wire(refused.error)
    assert isinstance(error, QueueError)
    assert str(error).startswith("created_at: only who may update queuejobs/status may set it")
    assert (await app.get_job_stats([], namespace=namespace)).total_jobs == 2
