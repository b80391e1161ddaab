"""TLS and mutual TLS of the REST port, with certificates of an authority of the test's own."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from pytest_asyncio import fixture
from tests.authority import Authority
from tests.unit.cli.typed import typed
from tests.waiting import DEADLINE_S

from queue_operator.api import server as serving
from queue_operator.api.app import create_app
from queue_operator.api.server import RestServer
from queue_operator.auth.open import AdministratorsOnly, OpenAuthenticator
from queue_operator.client import AsyncQueueClient
from queue_operator.domain.errors import InvalidArgument
from queue_operator.queue.service import QueueService
from queue_operator.settings import RestSettings, Settings
from queue_operator.testing.memory import MemoryStore
from queue_operator.wire.certificate_files import ServerFiles

StartRest = Callable[[ServerFiles], Awaitable[RestServer]]


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def files(authority: Authority) -> ServerFiles:
    return ServerFiles(*authority.issue("server", "localhost"))


@fixture(loop_scope="session")
async def start() -> AsyncIterator[StartRest]:
    """Starts a server with a queue of its own."""
    async with AsyncExitStack() as stack:
        store = MemoryStore()
        stack.push_async_callback(store.close)

        async def start_one(files: ServerFiles) -> RestServer:
            settings = Settings(rest=RestSettings(host="127.0.0.1", port=0))
            queue = QueueService(await store.open(), settings.queue)
            app = create_app(queue, OpenAuthenticator(), AdministratorsOnly(), settings)
            rest = RestServer(app, settings.rest, files=files)
            await rest.start()
            stack.push_async_callback(rest.stop)
            return rest

        yield start_one


def trusting(authority: Authority, pair: tuple[Path, Path] | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=authority.file)
    if pair is not None:
        context.load_cert_chain(*pair)
    return context


async def reaches(rest: RestServer, context: ssl.SSLContext) -> bool:
    """Over a connection of its own."""
    async with httpx.AsyncClient(verify=context) as http:
        try:
            answer = await http.get(f"https://localhost:{rest.port}/v1/jobs")
        except (httpx.ConnectError, httpx.ReadError, httpx.RemoteProtocolError):
            return False
        return answer.status_code == 200


async def test_who_trusts_the_authority_gets_in_and_nobody_else(
    start: StartRest, authority: Authority, files: ServerFiles, tmp_path: Path
) -> None:
    rest = await start(files)
    assert rest.url == f"https://127.0.0.1:{rest.port}"
    assert await reaches(rest, trusting(authority))
    assert not await reaches(rest, trusting(Authority(tmp_path, "other")))
    async with httpx.AsyncClient() as http:
        with pytest.raises(httpx.TransportError):
            await http.get(f"http://localhost:{rest.port}/v1/jobs")


async def test_mutual_tls_asks_for_a_certificate_of_the_clients_authority(
    start: StartRest, authority: Authority, files: ServerFiles, tmp_path: Path
) -> None:
    clients = Authority(tmp_path, "clients")
    rest = await start(replace(files, client_ca=clients.file))
    assert not await reaches(rest, trusting(authority))
    assert not await reaches(rest, trusting(authority, authority.issue("stranger")))
    assert await reaches(rest, trusting(authority, clients.issue("me")))


async def test_clients_and_commands_are_given_the_files(
    start: StartRest, authority: Authority, files: ServerFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    rest = await start(replace(files, client_ca=authority.file))
    certificate, key = authority.issue("me")
    url = f"https://localhost:{rest.port}"
    async with AsyncQueueClient(
        url, ca_file=authority.file, certificate_file=certificate, key_file=key
    ) as client:
        assert (await client.search()).jobs == ()
    options = (
        f"--url={url}",
        f"--ca-file={authority.file}",
        f"--cert-file={certificate}",
        f"--key-file={key}",
    )
    done = await asyncio.to_thread(typed, "list", "--output", "json", *options)
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["jobs"] == []


async def test_replaced_certificates_are_used_from_the_next_connection_on(
    start: StartRest, authority: Authority, files: ServerFiles, tmp_path: Path
) -> None:
    """A whole rotation: an authority that was taken away is believed no more."""
    rest = await start(replace(files, client_ca=authority.file))
    before = trusting(authority, authority.issue("client"))
    assert await reaches(rest, before)
    fresh = Authority(tmp_path)  # in the place of the first one's file
    fresh.issue("server", "localhost")
    assert await reaches(rest, trusting(fresh, fresh.issue("client")))
    assert not await reaches(rest, before)


async def test_a_rotation_gone_wrong_leaves_the_server_as_it_was(
    start: StartRest, authority: Authority, files: ServerFiles, caplog: pytest.LogCaptureFixture
) -> None:
    rest = await start(files)
    kept = files.certificate.read_bytes()
    authority.issue("server", "localhost")
    files.certificate.write_bytes(kept)
    assert await reaches(rest, trusting(authority))
    assert "the certificates stay as they were" in caplog.text
    files.key.unlink()
    assert await reaches(rest, trusting(authority))


@pytest.mark.parametrize("wrong", ["missing", "not PEM", "key of another"])
async def test_unusable_files_are_told_at_the_start(
    start: StartRest, authority: Authority, files: ServerFiles, wrong: str
) -> None:
    match wrong:
        case "missing":
            files.key.unlink()
        case "not PEM":
            files.certificate.write_text("nothing")
        case _:
            files = replace(files, key=authority.issue("another")[1])
    with pytest.raises(InvalidArgument) as caught:
        await start(files)
    assert caught.value.field == "rest.certificate_file"
    assert str(files.key) in str(caught.value)


async def test_who_never_agrees_on_tls_is_hung_up_on(
    start: StartRest, files: ServerFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "HANDSHAKE_S", 0.1)
    rest = await start(files)
    reader, writer = await asyncio.open_connection("127.0.0.1", rest.port)
    assert await asyncio.wait_for(reader.read(), DEADLINE_S) == b""
    writer.close()


@pytest.mark.parametrize(
    "given", [{"certificate_file": "c"}, {"key_file": "k"}, {"client_ca_file": "ca"}]
)
def test_settings_that_are_half_of_something_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="give"):
        RestSettings(**given)
