"""Which proxy gRPC goes through, as gRPC itself decides."""

import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from queue_operator.wire.proxies import way_to

VARIABLES = ("grpc_proxy", "https_proxy", "http_proxy", "no_grpc_proxy", "no_proxy")
SERVER = "queue.example:50051"


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("environment", "named"),
    [
        ({"http_proxy": "http://p:3128"}, "http_proxy (http://p:3128)"),
        ({"http_proxy": "http://p:1", "https_proxy": "http://q:2"}, "https_proxy (http://q:2)"),
        ({"https_proxy": "http://q:2", "grpc_proxy": "http://r:3"}, "grpc_proxy (http://r:3)"),
        ({"http_proxy": "http://me:SECRET@p:1"}, "http_proxy (http://p:1)"),
        ({"http_proxy": "http://[::1]:1"}, "http_proxy (http://[::1]:1)"),
        ({"http_proxy": "http://p:1", "no_proxy": "ample.com"}, "http_proxy (http://p:1)"),
    ],
)
def test_the_proxy_is_named_with_its_variable(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], named: str
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert way_to(SERVER) == (
        f"it was asked for by way of the proxy of {named}: correct it, unset it, or name "
        "queue.example in no_proxy"
    )


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"HTTP_PROXY": "http://p:1", "ALL_PROXY": "socks5://p:1"},
        {"http_proxy": "socks5://p:1"},
        {"http_proxy": "http://p:port"},
        {"http_proxy": "http://p:1", "grpc_proxy": ""},
        {"http_proxy": "http://p:1", "no_proxy": "localhost, .example"},
        {"http_proxy": "http://p:1", "no_grpc_proxy": "queue.example", "no_proxy": "other"},
    ],
)
def test_where_grpc_goes_straight_nothing_is_named(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert way_to(SERVER) == ""


def test_a_network_may_be_excepted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://p:1")
    monkeypatch.setenv("no_proxy", "10.0.0.0/8,::1")
    assert way_to("10.1.2.3:50051") == ""
    assert way_to("[::1]:50051") == ""
    assert "name 11.1.2.3 in no_proxy" in way_to("11.1.2.3:50051")


@pytest.fixture
def nobody() -> str:
    """An address at which nobody listens."""
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
    return f"127.0.0.1:{port}"


_ASK = """
import asyncio, sys
from queue_operator.client.grpc import GrpcQueue, Repeats
async def main():
    async with GrpcQueue("queue.example:50051", repeats=Repeats(attempts=1)) as queue:
        await queue.get_job("a")
asyncio.run(main())
"""


def test_a_client_of_grpc_tells_of_a_proxy_that_is_away(nobody: str, tmp_path: Path) -> None:
    program = tmp_path / "ask.py"
    program.write_text(_ASK)
    done = subprocess.run(
        [sys.executable, program],
        env={
            "PATH": "/usr/bin",
            "PYTHONPATH": ":".join(sys.path),
            "http_proxy": f"http://{nobody}",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    told = done.stderr.splitlines()[-1]
    assert "Unavailable" in told
    assert f"by way of the proxy of http_proxy (http://{nobody})" in told
