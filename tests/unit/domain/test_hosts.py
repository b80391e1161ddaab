"""How addresses to listen on may be written."""

import pytest

from queue_operator.domain.hosts import authority, host_of


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("::", "::"),
        ("[::]", "::"),
        ("0:0::0", "::"),
        (" ::1 ", "::1"),
        ("[fe80::1%eth0]", "fe80::1%eth0"),
        ("0.0.0.0", "0.0.0.0"),  # noqa: S104  (nobody listens)
        ("127.0.0.1", "127.0.0.1"),
        ("localhost", "localhost"),
        ("operator-0.my_queue.svc", "operator-0.my_queue.svc"),
    ],
)
def test_an_address_may_be_written_with_brackets_or_without(text: str, host: str) -> None:
    assert host_of(text) == host


@pytest.mark.parametrize(
    "text",
    ["", "[]", "0.0.0.0:8080", "[::]:8080", "::1]", "1.2.3", "1.2.3.4.5", "http://[::1]", "a b"],
)
def test_what_is_no_address_is_told_with_what_is_one(text: str) -> None:
    with pytest.raises(ValueError, match="is no address: write it as ") as raised:
        host_of(text)
    assert repr(text) in str(raised.value)


def test_a_host_and_a_port_in_one_word() -> None:
    assert authority("::1", 80) == "[::1]:80"
    assert authority("127.0.0.1", 80) == "127.0.0.1:80"
