"""What a worker's token opens, and that gRPC asks for each right as REST does."""

import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import httpx
import pytest
from tests.integration.rpc.conftest import Plane
from tests.integration.rpc.test_queue_door import CALLS, STATUS, Granting, Vouching, attempt

from queue_operator.api.app import create_app
from queue_operator.api.server import RestServer
from queue_operator.auth.protocol import Identity
from queue_operator.client.grpc import GrpcQueue
from queue_operator.domain import errors
from queue_operator.domain.job import Job
from queue_operator.domain.states import JobState
from queue_operator.settings import RestSettings, Settings
from queue_operator.testing.clauses import proves
from queue_operator.wire.v1 import worker_pb2 as pb

NewJobs = Callable[..., list[Job]]
Connect = Callable[..., Any]
WORKER = "of a pod"

# The call of each kind at REST, and the one at gRPC that does the same.
SAME: dict[str, tuple[str, str, Any]] = {
    "EnqueueJob": ("POST", "/jobs", {"type": "t", "payload": 1}),
    "EnqueueJobs": ("POST", "/jobs/batch", {"jobs": [{"type": "t", "payload": 1}]}),
    "CancelJobs": ("POST", "/jobs/cancel", {"job_ids": ["j"]}),
    "GetJob": ("GET", "/jobs/j", None),
    "GetJobStats": ("GET", "/stats", None),
    "DeleteJobs": ("POST", "/jobs/delete", {"job_ids": ["j"]}),
}


class Pods(Vouching):
    """A worker's token stands for its pod."""

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace

    async def authenticate(self, token: str | None) -> Identity:
        if token == WORKER:
            return Identity(
                name="worker", namespace=self._namespace, pod_name="worker-0", pod_uid="uid-0"
            )
        return await super().authenticate(token)


@pytest.fixture
def granting() -> Granting:
    return Granting()


@pytest.fixture
async def guarded(
    start_plane: Callable[..., Awaitable[Plane]], granting: Granting, namespace: str
) -> Plane:
    return await start_plane(Pods(namespace), granting)


@pytest.fixture
async def rest(guarded: Plane, granting: Granting) -> AsyncIterator[httpx.AsyncClient]:
    """On the same queue, with the same reviews."""
    settings = Settings(rest=RestSettings(host="127.0.0.1", port=0))
    app = create_app(guarded.queue, Vouching(), granting, settings)
    server = RestServer(app, settings.rest)
    await server.start()
    async with httpx.AsyncClient(
        base_url=server.url, headers={"Authorization": "Bearer somebody"}, timeout=60
    ) as http:
        yield http
    await server.stop()


@proves("queue-api.WorkerPlane.rule.15")
async def test_a_workers_token_opens_its_session_and_nothing_else(
    guarded: Plane, granting: Granting, connect: Connect, namespace: str, new_jobs: NewJobs
) -> None:
    async with GrpcQueue(f"127.0.0.1:{guarded.port}", WORKER) as client:
        for name, (_, call) in CALLS.items():
            refused = await attempt(call(client, namespace))
            assert isinstance(refused, errors.Forbidden), name
        for everywhere in (
            client.reset_running_jobs(),
            client.cleanup_expired_jobs(1.0),
            client.mark_worker_unresponsive("w"),
        ):
            assert isinstance(await attempt(everywhere), errors.Forbidden)
    # Its one right.
    connects = ("connect", "queueworkers", namespace)
    granting.asked, granting.granted = [], {connects}
    worker = connect(port=guarded.port, token=WORKER)
    assert (await worker.hello()).namespace == namespace
    await guarded.queue.enqueue_jobs(new_jobs(1))
    [job] = await worker.assignments(1)
    [ack] = await worker.settle(
        pb.Outcome(job_id=job.job_id, token=job.token, kind=pb.OUTCOME_KIND_COMPLETE)
    )
    assert (ack.error_code, ack.state) == ("", JobState.COMPLETED)
    assert granting.asked == [connects]


@proves("queue-api.WorkerPlane.rule.15")
@pytest.mark.parametrize("name", SAME)
async def test_rest_and_grpc_ask_for_the_same_right(
    guarded: Plane, granting: Granting, rest: httpx.AsyncClient, namespace: str, name: str
) -> None:
    method, path, body = SAME[name]
    params = {"namespace": namespace}
    async with GrpcQueue(f"127.0.0.1:{guarded.port}", "somebody") as client:
        refused = await attempt(CALLS[name][1](client, namespace))
        assert isinstance(refused, errors.Forbidden)
        by_grpc, granting.asked = granting.asked, []
        answer = await rest.request(method, f"/v1{path}", json=body, params=params)
        assert (answer.status_code, answer.json()["code"]) == (403, "FORBIDDEN")
        assert granting.asked == by_grpc
        # What opens the one opens the other.
        granting.granted = set(by_grpc)
        allowed = await attempt(CALLS[name][1](client, namespace))
        assert not isinstance(allowed, errors.Forbidden)
        answer = await rest.request(method, f"/v1{path}", json=body, params=params)
        assert answer.status_code in (200, 201, 404), answer.text


@proves("queue-api.WorkerPlane.rule.15")
async def test_only_who_may_update_the_status_may_leave_out_the_token(
    guarded: Plane, granting: Granting, namespace: str, new_jobs: NewJobs
) -> None:
    every_other = {
        (verb, resource, namespace)
        for verb in ("create", "get", "list", "update", "delete", "deletecollection")
        for resource in ("queuejobs", "queueworkers")
    }
    jobs = new_jobs(2)
    await guarded.queue.enqueue_jobs(jobs)
    async with guarded.queue.stream_jobs("w", [], 2, namespace=namespace) as stream:
        held: list[Job] = []
        while len(held) < 2:
            held += await anext(stream)
        granting.granted = set(every_other)
        async with GrpcQueue(f"127.0.0.1:{guarded.port}", "somebody") as client:
            for token in (None, held[0].token, uuid.uuid4().hex):
                refused = await attempt(
                    client.complete_job(held[0].id, b"", namespace=namespace, token=token)
                )
                assert isinstance(refused, errors.Forbidden)
            stored = await guarded.queue.get_job(held[0].id, namespace=namespace)
            assert stored.state is JobState.RUNNING
            granting.granted = {(*STATUS, namespace)}
            await client.complete_job(held[0].id, b"", namespace=namespace)
            await client.complete_job(held[1].id, b"", namespace=namespace, token=held[1].token)
    stats = await guarded.queue.get_job_stats([], namespace=namespace)
    assert stats.completed_jobs == 2
