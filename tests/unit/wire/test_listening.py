"""Sockets that listen, on both families, and what is said where there is none."""

import resource
import socket
from collections.abc import Iterator

import pytest

from queue_operator.wire import listening as module
from queue_operator.wire.listening import allow_open_files, listening, refusal, why_not

EVERY_IPV4 = "0.0.0.0"  # noqa: S104  (for a moment, on a free port)


def takes(listener: socket.socket, host: str) -> bool:
    try:
        socket.create_connection((host, listener.getsockname()[1]), timeout=5).close()
    except OSError:
        return False
    return True


@pytest.mark.parametrize(
    ("host", "families"),
    [
        ("::", {"127.0.0.1", "::1"}),
        ("::1", {"::1"}),
        (EVERY_IPV4, {"127.0.0.1"}),
        ("localhost", {"127.0.0.1"}),
    ],
)
def test_who_is_listened_to(host: str, families: set[str]) -> None:
    with listening(host, 0) as listener:
        assert {one for one in ("127.0.0.1", "::1") if takes(listener, one)} == families


def test_without_ipv6_every_address_is_every_one_of_ipv4(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(family: int, *_: object) -> socket.socket:
        raise OSError(97, "Address family not supported by protocol")

    with monkeypatch.context() as patched:
        patched.setattr(socket, "socket", refused)
        assert module.usable("::") == EVERY_IPV4
        assert module.usable("::1") == "::1"
    assert module.usable("::") == "::"


def test_what_is_wrong_is_told_with_what_to_set() -> None:
    with listening("::1", 0) as taken:
        port = taken.getsockname()[1]
        assert refusal("REST", "::1", port, why_not("::1", port), "REST") == (
            f"cannot serve REST on [::1]:{port}: the port is taken; set QUEUE_OPERATOR_REST__PORT"
        )
    for host, reason in (
        ("192.0.2.1", "the address is none of this machine's"),
        ("fd00:dead::1", "the address is none of this machine's"),
        ("no.such.host.invalid", "nobody knows that name"),
    ):
        told = refusal("gRPC", host, 0, why_not(host, 0), "GRPC")
        assert told.endswith(f": {reason}; set QUEUE_OPERATOR_GRPC__HOST")


@pytest.fixture
def few_files() -> Iterator[int]:
    """The hard limit, where the soft one is low."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, before[1]))
    yield before[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_as_many_files_may_be_opened_as_there_may_be_connections(few_files: int) -> None:
    assert allow_open_files(1000) == ""
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (1024, few_files)
    assert allow_open_files(2000) == ""
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (2000, few_files)


def test_where_no_more_are_allowed_it_is_told_what_to_do(few_files: int) -> None:
    told = allow_open_files(few_files + 1)
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (few_files, few_files)
    assert told == (
        f"this process may open {few_files} files, and its ports may have more connections than "
        f"that: raise the hard limit (ulimit -Hn, LimitNOFILE) to {few_files + 1}, or lower "
        "QUEUE_OPERATOR_REST__CONNECTIONS and QUEUE_OPERATOR_GRPC__CONNECTIONS"
    )
