"""Whoever sends a token without TLS is told, unless it stays on the machine."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.cli.typed import typed

from queue_operator.client import AsyncQueueClient, QueueClient
from queue_operator.client.grpc import ClientTls, GrpcQueue
from queue_operator.worker.client import Client
from queue_operator.worker.settings import WorkerSettings

AWAY = [("http://queue.example:8080", "queue.example:50051"), ("http://10.0.0.1", "10.0.0.1:1")]
HERE = [
    ("http://localhost:8080", "localhost:50051"),
    ("http://127.0.0.7:8080", "dns:///127.0.0.7:50051"),
    ("http://[::1]:8080", "[::1]:50051"),
    ("http://[::ffff:127.0.0.1]:8080", "ipv6:[::ffff:127.0.0.1]:50051"),
    ("http://queue.localhost.", "unix:/run/queue"),
]


def worker(address: str, **fields: Any) -> Any:
    return Client(WorkerSettings(server=address, **fields), session=None)  # type: ignore[arg-type]


def rest(url: str, token: str | None = None) -> list[Callable[[], Any]]:
    """Both clients of REST, to be made."""
    return [lambda: QueueClient(url, token), lambda: AsyncQueueClient(url, token)]


def told(caplog: pytest.LogCaptureFixture, *makes: Callable[[], Any]) -> list[str]:
    with caplog.at_level(logging.WARNING):
        for make in makes:
            make()
    return [record.getMessage() for record in caplog.records if "in clear" in record.getMessage()]


@pytest.mark.parametrize(("url", "address"), AWAY)
def test_a_token_that_goes_over_the_network_in_clear_is_told(
    url: str, address: str, caplog: pytest.LogCaptureFixture
) -> None:
    warnings = told(
        caplog,
        *rest(url, "t"),
        lambda: GrpcQueue(address, "t"),
        lambda: worker(address, token_file=Path("t")),
    )
    assert [text.partition(" in clear")[0] for text in warnings] == [
        f"the token is sent to {where}" for where in (url, url, address, address)
    ]


@pytest.mark.parametrize(("url", "address"), HERE)
def test_on_the_machine_nobody_else_reads_it(
    url: str, address: str, caplog: pytest.LogCaptureFixture
) -> None:
    makes = [*rest(url, "t"), lambda: GrpcQueue(address, "t")]
    if not address.startswith("unix:"):
        makes.append(lambda: worker(address.removeprefix("dns:///"), token_file=Path("t")))
    assert told(caplog, *makes) == []


def test_neither_without_a_token_nor_with_tls(caplog: pytest.LogCaptureFixture) -> None:
    [(url, address), *_] = AWAY
    https = url.replace("http", "https")
    assert not told(
        caplog,
        *rest(url),
        *rest(https, "t"),
        lambda: GrpcQueue(address),
        lambda: GrpcQueue(address, "t", tls=ClientTls()),
        lambda: worker(address),
        lambda: worker(address, token_file=Path("t"), ca_file=Path("ca")),
    )


def test_a_command_says_it_beside_what_it_prints() -> None:
    done = typed("pause", "--list", "--token", "t", "--url", "http://queue.invalid:8080")
    assert "warning: the token is sent to http://queue.invalid:8080 in clear" in done.stderr
    assert "in clear" not in done.stdout
