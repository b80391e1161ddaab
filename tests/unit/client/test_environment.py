"""Proxies and authorities of people's machines."""

from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.unit.cli.typed import typed
from tests.unit.client.scripted import Answer, serving

from queue_operator.client import AsyncQueueClient, QueueClient
from queue_operator.client.environment import EnvironmentProxy
from queue_operator.domain.errors import InvalidArgument

TARGET = "http://queue.example:8080"
PROXIES = tuple(f"{name}_proxy" for name in ("http", "https", "all", "no"))


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*PROXIES, *map(str.upper, PROXIES), "SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("environment", "told"),
    [
        ({}, None),
        ({"HTTP_PROXY": "http://p:1"}, "HTTP_PROXY (http://p:1)"),
        ({"http_proxy": "p:1", "HTTP_PROXY": "q:1"}, "http_proxy (http://p:1)"),
        ({"ALL_PROXY": "http://p:1"}, "ALL_PROXY (http://p:1)"),
        ({"ALL_PROXY": "http://p:1", "HTTP_PROXY": "http://q:1"}, "HTTP_PROXY (http://q:1)"),
        ({"HTTP_PROXY": "http://me:secret@p:1"}, "HTTP_PROXY (http://p:1)"),
        ({"HTTPS_PROXY": "http://p:1"}, None),
        ({"HTTP_PROXY": "http://p:1", "NO_PROXY": "localhost,.example"}, None),
        ({"HTTP_PROXY": "http://p:1", "NO_PROXY": "queue.example:8080"}, None),
        ({"HTTP_PROXY": "http://p:1", "NO_PROXY": "*"}, None),
        ({"HTTP_PROXY": "http://p:1", "NO_PROXY": "ample"}, "HTTP_PROXY (http://p:1)"),
        ({"ALL_PROXY": "socks5://p:1", "NO_PROXY": "queue.example"}, None),
    ],
)
def test_which_proxy_is_meant(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], told: str | None
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    proxy = EnvironmentProxy.for_url(httpx.URL(TARGET))
    assert (None if proxy is None else str(proxy)) == told


def test_loopback_addresses_of_both_families_can_be_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://p:1")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1, ::1")
    for target in ("http://127.0.0.1:8080", "http://[::1]:8080"):
        assert EnvironmentProxy.for_url(httpx.URL(target)) is None


@pytest.mark.parametrize(
    ("target", "straight"),
    [
        ("http://10.1.2.3:8080", True),
        ("http://[fd00::7]:8080", True),
        ("http://11.1.2.3:8080", False),
        ("http://[fe80::7]:8080", False),
        ("http://10.example:8080", False),
    ],
)
def test_networks_can_be_left_out(
    monkeypatch: pytest.MonkeyPatch, target: str, straight: bool
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://p:1")
    monkeypatch.setenv("NO_PROXY", "localhost, 10.0.0.0/8,fd00::/8,nothing/8")
    assert (EnvironmentProxy.for_url(httpx.URL(target)) is None) == straight


@pytest.mark.parametrize("kind", [QueueClient, AsyncQueueClient])
@pytest.mark.parametrize(
    ("variable", "value", "told"),
    [
        ("ALL_PROXY", "ftp://p:1", "is no proxy of http, https or socks5: correct it"),
        ("HTTP_PROXY", "http://", "is no proxy of http"),
        ("HTTP_PROXY", "http://p:port", "is no address of a proxy"),
    ],
)
def test_a_proxy_that_is_none_is_named_by_its_variable(
    monkeypatch: pytest.MonkeyPatch,
    kind: type[QueueClient | AsyncQueueClient],
    variable: str,
    value: str,
    told: str,
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(InvalidArgument, match=told) as raised:
        kind(TARGET)
    assert raised.value.field == variable
    assert "name queue.example in NO_PROXY" in raised.value.reason


def test_a_socks_proxy_is_one_line_that_says_what_to_install() -> None:
    done = typed("stats", ALL_PROXY="socks5://me:secret@127.0.0.1:1080")
    assert (done.exit_code, done.stdout) == (1, "")
    first, *_ = done.stderr.splitlines()
    assert first.startswith("error: ALL_PROXY: socks5://127.0.0.1:1080 is a SOCKS proxy")
    assert "pip install 'httpx[socks]'" in first


def test_a_proxy_that_is_away_is_named() -> None:
    done = typed("retry", "x", HTTP_PROXY="http://me:secret@127.0.0.1:9")
    assert done.exit_code == 1
    first, _ = done.stderr.splitlines()
    reached = "the queue operator cannot be reached by way of the proxy of"
    assert first.startswith(f"error: {reached} HTTP_PROXY (http://127.0.0.1:9): ")


def test_an_answer_that_may_be_the_proxys_names_it() -> None:
    with serving(Answer(407, b"<html>who are you?</html>")) as proxy:
        done = typed("retry", "x", HTTP_PROXY=proxy.url)
    assert done.exit_code == 1
    assert f"status 407 by way of the proxy of HTTP_PROXY ({proxy.url})" in done.stderr


def test_a_proxy_is_used() -> None:
    with serving(Answer(200, {"pauses": []})) as proxy:
        done = typed("pause", "--list", "--url", TARGET, HTTP_PROXY=proxy.url)
    assert done.exit_code == 0, done.output
    assert proxy.asked[0].path == f"{TARGET}/v1/pauses"


def test_authorities_that_are_not_there_are_named_by_their_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", "/no/such/file.pem")
    with pytest.raises(InvalidArgument, match=r"/no/such/file\.pem: No such file") as raised:
        QueueClient("https://queue.example")
    assert raised.value.field == "SSL_CERT_FILE"


CLIENTS = pytest.mark.parametrize("kind", [QueueClient, AsyncQueueClient])


@CLIENTS
@pytest.mark.parametrize(
    ("files", "field"),
    [
        ({"ca_file": "missing.pem"}, "ca_file"),
        ({"ca_file": "none.pem"}, "ca_file"),
        ({"certificate_file": "missing.pem", "key_file": "missing.pem"}, "certificate_file"),
        ({"certificate_file": "none.pem", "key_file": "none.pem"}, "certificate_file"),
        ({"certificate_file": "none.pem"}, "key_file"),
        ({"key_file": "none.pem"}, "certificate_file"),
    ],
)
def test_files_that_cannot_be_used_are_told_by_their_argument(
    kind: type[QueueClient | AsyncQueueClient],
    files: dict[str, str],
    field: str,
    tmp_path: Path,
) -> None:
    (tmp_path / "none.pem").write_text("nothing")
    paths: dict[str, Any] = {name: tmp_path / file for name, file in files.items()}
    with pytest.raises(InvalidArgument) as raised:
        kind("https://queue.example", **paths)
    assert raised.value.field == field


def test_a_command_names_the_option_of_a_file_that_cannot_be_used(tmp_path: Path) -> None:
    missing = str(tmp_path / "ca.pem")
    for done in (
        typed("pause", "--list", "--url", "https://queue.example", "--ca-file", missing),
        typed(
            "pause",
            "--list",
            QUEUE_OPERATOR_URL="https://queue.example",
            QUEUE_OPERATOR_CA_FILE=missing,
        ),
    ):
        assert done.exit_code == 2
        assert f"Invalid value for --ca-file: {missing}: No such file or directory" in done.stderr
