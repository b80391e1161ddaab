"""Sessions of workers whose tokens a real API server judges."""

import base64
import json
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

import grpc
import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from tests.integration.auth.tenant import AUDIENCE, Tenant

from queue_operator.auth.kubernetes import KubernetesAuthenticator, KubernetesAuthorizer, connect
from queue_operator.backends.memory import MemoryBackend
from queue_operator.devcluster import ClusterInfo
from queue_operator.domain.job import Job
from queue_operator.queue.service import QueueService
from queue_operator.rpc.server import WorkerPlaneServer
from queue_operator.settings import Settings
from queue_operator.wire.v1 import worker_pb2 as pb
from queue_operator.wire.v1.worker_pb2_grpc import WorkerPlaneStub

_COORDINATE_BYTES = 32


@pytest.fixture
async def queue() -> AsyncIterator[QueueService]:
    queue = QueueService(MemoryBackend())
    await queue.start()
    yield queue
    await queue.close()


@pytest.fixture
async def channel(queue: QueueService, kubeconfig: str) -> AsyncIterator[grpc.aio.Channel]:
    reviews = connect(kubeconfig)
    server = WorkerPlaneServer(
        queue,
        KubernetesAuthenticator(reviews, AUDIENCE),
        Settings(),
        KubernetesAuthorizer(reviews),
    )
    port = await server.start(0)
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield channel
    await server.stop()
    reviews.close()


async def opened(channel: grpc.aio.Channel, token: str, session_id: str) -> Any:
    """A session that has said hello."""
    metadata = (("authorization", f"Bearer {token}"),)
    call = WorkerPlaneStub(channel).Session(metadata=metadata)
    hello = pb.Hello(session_id=session_id, worker_name="said", capacity=1)
    await call.write(pb.WorkerMessage(hello=hello))
    return call


async def heard(call: Any) -> pb.ServerMessage:
    message = await call.read()
    assert isinstance(message, pb.ServerMessage)
    return message


async def refusal(call: Any) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call.read()
    return caught.value


async def test_a_token_of_another_pod_takes_no_session_over(
    channel: grpc.aio.Channel, queue: QueueService, tenant: Tenant
) -> None:
    owner = await opened(channel, tenant.worker_token("owner"), "session")
    welcome = (await heard(owner)).welcome
    assert (welcome.worker_name, welcome.namespace) == ("owner", tenant.namespace)
    thief = await opened(channel, tenant.worker_token("thief"), "session")
    assert (await refusal(thief)).code() is grpc.StatusCode.PERMISSION_DENIED
    # The one that has it works on.
    await queue.enqueue_job(Job(id="j", type="t", namespace=tenant.namespace))
    [job] = (await heard(owner)).assignments.assignments
    assert job.job_id == "j"
    assert [usage.spec.worker_name for usage in queue.usage()] == ["owner"]
    owner.cancel()


async def test_a_token_that_is_bound_to_no_pod_opens_no_session(
    channel: grpc.aio.Channel, tenant: Tenant
) -> None:
    refused = await refusal(await opened(channel, tenant.token(), "session"))
    assert refused.code() is grpc.StatusCode.PERMISSION_DENIED
    assert "not bound to a pod" in (refused.details() or "")


async def test_a_pod_whose_account_may_not_connect_opens_no_session(
    channel: grpc.aio.Channel, tenant: Tenant
) -> None:
    token = tenant.token(pod=tenant.pod("ordinary"))
    refused = await refusal(await opened(channel, token, "session"))
    assert refused.code() is grpc.StatusCode.PERMISSION_DENIED
    assert f"may not connect queueworkers in namespace {tenant.namespace!r}" in (
        refused.details() or ""
    )


async def test_an_expired_token_opens_no_session(
    channel: grpc.aio.Channel, queue: QueueService, cluster: ClusterInfo, tenant: Tenant
) -> None:
    token = tenant.worker_token("late")
    good = await opened(channel, issued(cluster, token, ends_in_s=600), "good")
    assert (await heard(good)).welcome.worker_name == "late"
    refused = await refusal(await opened(channel, issued(cluster, token, ends_in_s=-60), "late"))
    assert refused.code() is grpc.StatusCode.UNAUTHENTICATED
    assert "expired" in (refused.details() or "")
    assert [usage.spec.assignee_id for usage in queue.usage()] == ["good"]
    good.cancel()


def issued(cluster: ClusterInfo, token: str, *, ends_in_s: float) -> str:
    """The same token as the API server would have issued it an hour before that end: it makes
    none that live for less than ten minutes.
    """
    header, claims, _ = (part.encode() for part in token.split("."))
    ends_at = int(time.time() + ends_in_s)
    begin = {name: ends_at - 3600 for name in ("iat", "nbf")}
    body = _part(json.loads(_unpadded(claims)) | begin | {"exp": ends_at})
    key = load_pem_private_key(_signing_key(cluster), password=None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    signed = key.sign(header + b"." + body, ec.ECDSA(hashes.SHA256()))
    signature = b"".join(
        number.to_bytes(_COORDINATE_BYTES, "big") for number in decode_dss_signature(signed)
    )
    return b".".join((header, body, _encoded(signature))).decode()


def _signing_key(cluster: ClusterInfo) -> bytes:
    return (cluster.kubeconfig.parents[1] / "pki" / "service-account.key").read_bytes()


def _part(claims: Mapping[str, object]) -> bytes:
    return _encoded(json.dumps(claims).encode())


def _encoded(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")


def _unpadded(part: bytes) -> bytes:
    return base64.urlsafe_b64decode(part + b"=" * (-len(part) % 4))
