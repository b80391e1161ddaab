"""TLS and mutual TLS of the gRPC port, with certificates of an authority of the test's own."""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding
from tests.authority import Authority
from tests.chaos.proxy import Proxy
from tests.programs import started
from tests.waiting import DEADLINE_S, until

from queue_operator.client.grpc import ClientTls, GrpcQueue, Repeats
from queue_operator.domain.errors import InvalidArgument, Unavailable
from queue_operator.domain.job import Job
from queue_operator.domain.states import JobState
from queue_operator.settings import GrpcSettings
from queue_operator.testing.clauses import proves

StartPlane = Callable[..., Awaitable[Any]]
NewJobs = Callable[..., list[Job]]
ONCE = Repeats(attempts=1)
RUNNING = JobState.RUNNING


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def server_files(authority: Authority) -> dict[str, Path]:
    certificate, key = authority.issue("server", "localhost")
    return {"certificate_file": certificate, "key_file": key}


def client_of(plane: Any, tls: ClientTls | None) -> GrpcQueue:
    return GrpcQueue(f"localhost:{plane.port}", plane.token, tls=tls, repeats=ONCE)


async def reaches(plane: Any, tls: ClientTls | None) -> bool:
    async with client_of(plane, tls) as client:
        try:
            await client.get_job_stats([])
        except Unavailable:
            return False
        return True


@proves("queue-api.WorkerPlane.rule.14")
async def test_who_trusts_the_authority_gets_in_and_nobody_else(
    start_plane: StartPlane, authority: Authority, server_files: dict[str, Path], tmp_path: Path
) -> None:
    plane = await start_plane(**server_files)
    other = Authority(tmp_path, "other")
    assert await reaches(plane, ClientTls(ca_file=authority.file))
    assert not await reaches(plane, ClientTls(ca_file=other.file))
    assert not await reaches(plane, ClientTls())
    assert not await reaches(plane, None)


async def test_a_certificate_for_another_name_is_believed_only_where_that_is_asked_for(
    start_plane: StartPlane, authority: Authority
) -> None:
    certificate, key = authority.issue("server", "queue-operator.svc")
    plane = await start_plane(certificate_file=certificate, key_file=key)
    assert not await reaches(plane, ClientTls(ca_file=authority.file))
    named = ClientTls(ca_file=authority.file, server_name="queue-operator.svc")
    assert await reaches(plane, named)


@proves("queue-api.WorkerPlane.rule.14")
async def test_mutual_tls_asks_for_a_certificate_of_the_clients_authority(
    start_plane: StartPlane, authority: Authority, server_files: dict[str, Path], tmp_path: Path
) -> None:
    clients = Authority(tmp_path, "clients")
    plane = await start_plane(**server_files, client_ca_file=clients.file)
    certificate, key = clients.issue("me")
    stranger, its_key = authority.issue("stranger")
    trusting = ClientTls(ca_file=authority.file)
    assert not await reaches(plane, trusting)
    showing = replace(trusting, certificate_file=stranger, key_file=its_key)
    assert not await reaches(plane, showing)
    showing = replace(trusting, certificate_file=certificate, key_file=key)
    assert await reaches(plane, showing)


async def test_replaced_certificates_are_used_by_server_and_client_without_a_restart(
    start_plane: StartPlane,
    authority: Authority,
    server_files: dict[str, Path],
    tmp_path: Path,
    namespace: str,
    new_jobs: NewJobs,
) -> None:
    """A whole rotation: all certificates are of another authority afterwards."""
    certificate, key = authority.issue("client")
    plane = await start_plane(**server_files, client_ca_file=authority.file)
    tls = ClientTls(ca_file=authority.file, certificate_file=certificate, key_file=key)
    async with (
        Proxy(lambda: ("127.0.0.1", plane.port)) as proxy,
        GrpcQueue(f"localhost:{proxy.port}", plane.token, tls=tls) as client,
    ):
        stream = client.stream_jobs("me", [], 5, namespace=namespace)
        async with stream:
            # It is open when it gives a job.
            [early] = new_jobs()
            await client.enqueue_job(early)
            assert [got.id for got in await asyncio.wait_for(anext(stream), DEADLINE_S)] == [
                early.id
            ]
            fresh = Authority(tmp_path)  # in the place of the first one's file
            fresh.issue("server", "localhost")
            fresh.issue("client")
            # The client takes new files at once, so this is a new connection.
            [job] = new_jobs()
            await client.enqueue_job(job)
            # The stream goes on over the old one.
            assert [got.id for got in await asyncio.wait_for(anext(stream), DEADLINE_S)] == [job.id]
        await proxy.cut()
        await client.get_job_stats([], namespace=namespace)
    (tmp_path / "old.pem").write_bytes(authority.certificate.public_bytes(Encoding.PEM))
    assert not await reaches(plane, ClientTls(ca_file=tmp_path / "old.pem"))


async def test_a_stream_is_ended_where_it_is_although_new_calls_go_to_another_replica(
    start_plane: StartPlane,
    authority: Authority,
    server_files: dict[str, Path],
    namespace: str,
    new_jobs: NewJobs,
) -> None:
    first, second = [await start_plane(**server_files) for _ in range(2)]
    at = first
    async with (
        Proxy(lambda: ("127.0.0.1", at.port)) as proxy,
        GrpcQueue(
            f"localhost:{proxy.port}", first.token, tls=ClientTls(ca_file=authority.file)
        ) as client,
    ):
        async with client.stream_jobs("me", [], 5, namespace=namespace):
            at = second
            os.utime(authority.file)
            [job] = new_jobs()
            await client.enqueue_job(job)

            async def assigned() -> bool:
                return (await client.get_job(job.id, namespace=namespace)).state is RUNNING

            await until(assigned)
        back = await client.get_job(job.id, namespace=namespace)
        assert (back.state, back.attempt) == (JobState.FAILED_RETRY, 0)
    assert first.queue.usage() == []


async def test_a_rotation_gone_wrong_leaves_the_server_as_it_was(
    start_plane: StartPlane,
    authority: Authority,
    server_files: dict[str, Path],
    caplog: pytest.LogCaptureFixture,
) -> None:
    plane = await start_plane(**server_files)
    assert await reaches(plane, ClientTls(ca_file=authority.file))
    kept = server_files["certificate_file"].read_bytes()
    authority.issue("server", "localhost")
    server_files["certificate_file"].write_bytes(kept)
    assert await reaches(plane, ClientTls(ca_file=authority.file))
    assert "the certificates stay as they were" in caplog.text
    server_files["key_file"].unlink()
    assert await reaches(plane, ClientTls(ca_file=authority.file))


async def test_a_client_goes_on_while_its_files_are_away_and_needs_them_to_begin(
    start_plane: StartPlane, authority: Authority, server_files: dict[str, Path]
) -> None:
    plane = await start_plane(**server_files)
    tls = ClientTls(ca_file=authority.file)
    async with client_of(plane, tls) as client:
        await client.get_job_stats([])
        authority.file.unlink()
        await client.get_job_stats([])
        async with client_of(plane, tls) as late:
            with pytest.raises(Unavailable, match="TLS settings"):
                await late.get_job_stats([])
            with pytest.raises(Unavailable, match="TLS settings"):
                await anext(late.stream_jobs("me", [], 1))


@pytest.mark.parametrize("wrong", ["missing", "not PEM", "key of another"])
async def test_unusable_files_are_told_at_the_start(
    start_plane: StartPlane, authority: Authority, server_files: dict[str, Path], wrong: str
) -> None:
    match wrong:
        case "missing":
            server_files["key_file"].unlink()
        case "not PEM":
            server_files["certificate_file"].write_text("nothing")
        case _:
            server_files["key_file"] = authority.issue("another")[1]
    with pytest.raises(InvalidArgument) as caught:
        await start_plane(**server_files)
    assert caught.value.field == "grpc.certificate_file"
    assert str(server_files["key_file"]) in str(caught.value)


@pytest.mark.parametrize(
    "files", [{"certificate_file": "c"}, {"key_file": "k"}, {"client_ca_file": "ca"}]
)
def test_settings_that_are_half_of_something_are_refused(files: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="give"):
        GrpcSettings(**files)


HANDLERS = """
from queue_operator.worker import Worker

worker = Worker()

@worker.handler("mail")
def mail(ctx):
    return "sent"
"""


@proves("queue-api.WorkerPlane.rule.14")
async def test_a_worker_shows_its_certificate_and_takes_renewed_ones_when_it_connects(
    start_plane: StartPlane,
    authority: Authority,
    server_files: dict[str, Path],
    tmp_path: Path,
    namespace: str,
    new_jobs: NewJobs,
) -> None:
    plane = await start_plane(**server_files, client_ca_file=authority.file)
    certificate, key = authority.issue("worker")
    (tmp_path / "tls_jobs.py").write_text(HANDLERS)
    (tmp_path / "token").write_text(plane.token)

    async def done() -> bool:
        stats = await plane.queue.get_job_stats([], namespace=namespace)
        return bool(stats.total_jobs == stats.completed_jobs)

    async with (
        Proxy(lambda: ("127.0.0.1", plane.port)) as proxy,
        started(
            sys.executable, "-m", "queue_operator.worker.main", "tls_jobs:worker",
            PYTHONPATH=os.pathsep.join([str(tmp_path), *sys.path]),
            QUEUE_OPERATOR_SERVER=f"localhost:{proxy.port}",
            QUEUE_OPERATOR_TOKEN_FILE=str(tmp_path / "token"),
            QUEUE_OPERATOR_CA_FILE=str(authority.file),
            QUEUE_OPERATOR_CERT_FILE=str(certificate),
            QUEUE_OPERATOR_KEY_FILE=str(key),
            QUEUE_OPERATOR_NAMESPACE=namespace,
            QUEUE_OPERATOR_HEALTH_PORT="0",
        ),
    ):  # fmt: skip
        await plane.queue.enqueue_jobs(new_jobs(1))
        await until(done)
        fresh = Authority(tmp_path)
        fresh.issue("server", "localhost")
        fresh.issue("worker")
        await proxy.cut()
        await plane.queue.enqueue_jobs(new_jobs(1))
        await until(done)
