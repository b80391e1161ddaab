"""Where callbacks may go, in whatever way it is written."""

import pytest
from tests.unit.domain.addresses_of_receivers import CONNECTED, SUBMITTED

from queue_operator.domain.callbacks import check_callback_url
from queue_operator.domain.errors import InvalidArgument
from queue_operator.domain.reach import Reach

_USUAL = Reach.of([])


def _is_taken(url: str, reach: Reach = _USUAL) -> bool:
    try:
        check_callback_url("callback_url", url, reach)
    except InvalidArgument:
        return False
    return True


@pytest.mark.parametrize(("host", "taken"), SUBMITTED)
def test_a_host_is_judged_in_every_form_when_it_is_given(host: str, taken: bool) -> None:
    assert _is_taken(f"https://{host}/done?a=b") is taken
    assert _is_taken(f"https://{host}:8443") is taken


def test_the_table_of_hosts_has_each_once() -> None:
    assert len(dict(SUBMITTED)) == len(SUBMITTED) > 40
    assert len(dict(CONNECTED)) == len(CONNECTED) > 30


@pytest.mark.parametrize(("address", "allowed"), CONNECTED)
def test_an_address_is_judged_before_it_is_connected_to(address: str, allowed: bool) -> None:
    assert (_USUAL.address_fault(address, "example.com") is None) is allowed


@pytest.mark.parametrize(
    ("host", "taken"),
    [
        ("10.0.0.1", True),
        ("100.64.0.1", True),
        ("[fd12::1]", True),
        ("[::ffff:10.0.0.1]", True),
        ("0.0.0.0", False),  # noqa: S104
        ("127.0.0.1", False),
        ("[::1]", False),
        ("[::]", False),
        ("[::127.0.0.1]", False),
        ("[::ffff:127.0.0.1]", False),
        ("[64:ff9b::127.0.0.1]", False),
        ("[::ffff:0:127.0.0.1]", False),
        ("[fe80::1]", False),
        ("169.254.1.1", False),
        ("169.254.169.254", False),
        ("[fd00:ec2::254]", False),
        ("100.100.100.200", False),
        ("168.63.129.16", False),
        ("224.0.0.1", False),
        ("localhost", False),
    ],
)
def test_whoever_opens_all_networks_opens_neither_this_machine_nor_metadata(
    host: str, taken: bool
) -> None:
    assert _is_taken(f"https://{host}/", Reach.of(["0.0.0.0/0", "::/0"])) is taken


@pytest.mark.parametrize(
    ("allow", "host"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("127.0.0.0/8", "127.9.9.9"),
        ("::1", "[::1]"),
        ("[::1]", "[0:0::1]"),
        ("10.0.0.0/8", "10.1.2.3"),
        ("10.0.0.0/8", "[::ffff:10.1.2.3]"),
        ("169.254.169.254", "169.254.169.254"),
        ("fd12::/16", "[fd12::5]"),
        ("Receiver", "receiver"),
        ("hooks.tools.svc", "HOOKS.tools.svc."),
        ("hooks.tools.svc.", "hooks.tools.svc"),
        ("*.svc.cluster.local", "hooks.tools.svc.cluster.local"),
        ("localhost", "localhost"),
    ],
)
def test_an_inside_target_can_be_opened(allow: str, host: str) -> None:
    assert not _is_taken(f"https://{host}/")
    assert _is_taken(f"https://{host}/", Reach.of([allow]))


@pytest.mark.parametrize(
    ("allow", "host"),
    [
        ("10.0.0.0/8", "10.1"),
        ("127.0.0.1", "2130706433"),
        ("127.0.0.1", "127.0.0.2"),
        ("127.0.0.1", "localhost"),
        ("localhost", "127.0.0.1"),
        ("169.254.0.0/16", "169.254.169.254"),
        ("hooks.tools.svc", "evil.hooks.tools.svc"),
        ("*.tools.svc", "tools.svc"),
        ("*.tools.svc", "eviltools.svc"),
    ],
)
def test_nothing_else_is_opened_with_it(allow: str, host: str) -> None:
    assert not _is_taken(f"https://{host}/", Reach.of([allow]))


def test_a_name_that_was_opened_may_have_addresses_of_inside_but_not_this_machine() -> None:
    reach = Reach.of(["hooks.tools.svc"])
    assert reach.address_fault("10.96.3.4", "hooks.tools.svc") is None
    assert reach.address_fault("10.96.3.4", "other.tools.svc") is not None
    assert reach.address_fault("127.0.0.1", "hooks.tools.svc") is not None
    assert reach.address_fault("169.254.169.254", "hooks.tools.svc") is not None


@pytest.mark.parametrize(
    "entry",
    ["", "*", "*.", "a b", "http://a", "a/b", "10.0.0.1/8", "127.1", "10.0.0.0/33", "a:80", "-a"],
)
def test_an_entry_that_opens_nothing_is_refused(entry: str) -> None:
    with pytest.raises(ValueError, match="is no"):
        Reach.of([entry])


def test_http_is_for_those_who_allow_it() -> None:
    assert not _is_taken("http://example.com/")
    assert _is_taken("http://example.com/", Reach.of([], http=True))
    assert not _is_taken("http://127.0.0.1/", Reach.of([], http=True))


@pytest.mark.parametrize("port", [22, 25, 1, 3306, 5432, 6379, 11211, 65535])
def test_a_port_of_something_else_is_refused(port: int) -> None:
    assert not _is_taken(f"https://example.com:{port}/")
    assert _is_taken(f"https://example.com:{port}/", Reach.of([], ports=[port]))
    assert _is_taken(f"https://example.com:{port}/", Reach.of([], ports=[]))


def test_the_port_of_the_scheme_is_judged_too() -> None:
    assert not _is_taken("https://example.com/", Reach.of([], ports=[8443]))
    assert not _is_taken("https://example.com:/", Reach.of([], ports=[8443]))


def test_a_refusal_says_what_to_do() -> None:
    fault = _USUAL.url_fault("https://10.0.0.1/")
    assert fault is not None
    assert "10.0.0.1 is not public" in fault
    assert "webhooks.allow" in fault
