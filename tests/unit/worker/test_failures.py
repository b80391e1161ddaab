"""What a worker says of a session that does not come about."""

from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc import aio

from queue_operator.worker import WorkerSettings
from queue_operator.worker.errors import UnusableToken
from queue_operator.worker.failures import FIRST_PAUSE_S, Failure, Repetition, failure_of

UNKNOWN_TOKEN = (
    "missing or unknown token; send 'Authorization: Bearer TOKEN' with one of the server's "
    "auth.tokens"
)


def status(code: grpc.StatusCode, text: str) -> aio.AioRpcError:
    return aio.AioRpcError(code, aio.Metadata(), aio.Metadata(), text)


async def told(error: Exception, *, at_start: bool = True, **settings: Any) -> Failure:
    return await failure_of(error, WorkerSettings(**settings), at_start=at_start)


async def test_a_worker_without_a_token_is_told_where_to_give_one() -> None:
    failure = await told(status(grpc.StatusCode.UNAUTHENTICATED, UNKNOWN_TOKEN))
    assert failure == Failure(
        "UNAUTHENTICATED: missing or unknown token; it takes one of the server's auth.tokens; set "
        "QUEUE_OPERATOR_TOKEN_FILE to a file that holds the token",
        refused=True,
    )


async def test_a_wrong_token_is_told_by_its_file(tmp_path: Path) -> None:
    refused = status(grpc.StatusCode.UNAUTHENTICATED, UNKNOWN_TOKEN)
    failure = await told(refused, token_file=tmp_path / "token")
    assert failure.text.endswith(f"check the token in {tmp_path}/token (QUEUE_OPERATOR_TOKEN_FILE)")
    assert "Bearer" not in failure.text


@pytest.mark.parametrize(
    ("absent", "variable"),
    [("token_file", "QUEUE_OPERATOR_TOKEN_FILE"), ("ca_file", "QUEUE_OPERATOR_CA_FILE")],
)
async def test_of_several_files_the_one_at_fault_is_named(
    tmp_path: Path, absent: str, variable: str
) -> None:
    files: dict[str, Any] = {"token_file": tmp_path / "token", "ca_file": tmp_path / "ca"}
    with pytest.raises(FileNotFoundError) as caught:
        files[absent].read_bytes()
    failure = await told(caught.value, **files)
    assert failure.refused
    assert failure.text.startswith(f"{variable}: ")
    assert failure.text.count("QUEUE_OPERATOR_") == 1


async def test_a_file_without_a_token_is_named(tmp_path: Path) -> None:
    file = tmp_path / "token"
    failure = await told(UnusableToken(file), token_file=file, ca_file=tmp_path / "ca")
    assert failure.text.startswith(f"QUEUE_OPERATOR_TOKEN_FILE: {file} holds no bearer token")


@pytest.mark.parametrize(
    "error", [status(grpc.StatusCode.UNAVAILABLE, "Connection refused"), TimeoutError()]
)
async def test_at_the_start_the_address_may_be_wrong(error: Exception) -> None:
    first = await told(error)
    assert first.text.endswith("; check QUEUE_OPERATOR_SERVER")
    later = await told(error, at_start=False)
    assert "QUEUE_OPERATOR_SERVER" not in later.text
    assert (first.refused, later.refused) == (False, False)


async def test_a_proxy_before_the_server_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("grpc_proxy", "https_proxy", "no_grpc_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", "http://me:SECRET@proxy.example:3128")
    away = status(grpc.StatusCode.UNAVAILABLE, "failed to connect to all addresses; refused")
    failure = await told(away, server="queue.example:50051")
    assert "by way of the proxy of http_proxy (http://proxy.example:3128)" in failure.text
    assert "name queue.example in no_proxy" in failure.text


async def test_a_hello_that_is_refused_is_hopeless() -> None:
    assert (await told(status(grpc.StatusCode.INVALID_ARGUMENT, "tags"))).hopeless
    assert not (await told(status(grpc.StatusCode.PERMISSION_DENIED, "no"))).hopeless


def test_what_is_said_again_is_said_ever_more_seldom() -> None:
    repetition = Repetition()
    seconds = range(int(FIRST_PAUSE_S * 4))
    lines = [(now, count) for now in seconds if (count := repetition.tell("a", now)) is not None]
    assert lines == [(0, 0), (10, 9), (30, 19)]
    assert repetition.tell("b", 31) == 0
    repetition.forget()
    assert repetition.tell("b", 32) == 0
