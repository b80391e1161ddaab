"""What is connected to, whatever the name server says the second time."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.authority import Authority
from tests.unit.domain.addresses_of_receivers import CONNECTED, SUBMITTED
from tests.unit.webhooks.names import Client, NameServer, name_server
from tests.unit.webhooks.receivers import OK, answering, receiver

from queue_operator.domain.errors import InvalidArgument
from queue_operator.domain.reach import Reach
from queue_operator.webhooks.connecting import Lookup
from queue_operator.webhooks.guard import Guard, is_own
from queue_operator.webhooks.posting import Poster
from queue_operator.webhooks.proxies import Proxies

OUTSIDE = "127.0.0.8"
"""Stands for an address outside: the rules of these tests allow it, and nothing else."""
INSIDE = "127.0.0.1"
NAME = "hooks.example.com"
REACH = Reach.of([OUTSIDE], ports=[], http=True)


@asynccontextmanager
async def a_poster(
    *answers: Sequence[str],
    reach: Reach = REACH,
    tls: ssl.SSLContext | None = None,
    lookup: Lookup | None = None,
) -> AsyncIterator[tuple[Poster, NameServer]]:
    """It asks a name server that answers with these addresses, one answer after the other."""
    async with (
        name_server({NAME: answers}) as server,
        Poster(
            Guard(reach),
            total_s=60,
            answer_bytes=4096,
            proxies=Proxies.none(),
            lookup=lookup or Client(server.address),
            tls=tls,
        ) as poster,
    ):
        yield poster, server


async def test_a_name_that_leads_outside_is_told() -> None:
    async with (
        receiver(answering(OK), host=OUTSIDE) as heard,
        a_poster([OUTSIDE]) as (poster, server),
    ):
        answer = await poster.post(f"http://{NAME}:{heard.port}/", {}, b"{}")
    assert answer.status == 200
    assert heard.requests[0][1]["host"] == f"{NAME}:{heard.port}"
    assert server.asked == [NAME]


@pytest.mark.parametrize("second", [[INSIDE], [OUTSIDE, INSIDE], ["::1"], ["::ffff:127.0.0.1"]])
async def test_a_name_that_leads_inside_the_second_time_is_refused(second: Sequence[str]) -> None:
    closing = answering(OK, close=True)
    async with (
        receiver(closing, host=OUTSIDE) as heard,
        receiver(answering(OK), host=INSIDE, port=heard.port) as inside,
        a_poster([OUTSIDE], second) as (poster, server),
    ):
        url = f"http://{NAME}:{heard.port}/"
        first, again = [await poster.post(url, {}, b"{}") for _ in range(2)]
    assert (first.status, first.refused) == (200, False)
    assert (again.status, again.refused) == (None, True)
    assert (heard.connections, inside.connections) == (1, 0)
    assert len(server.asked) == 2


async def test_it_is_asked_once_for_each_connection_so_that_no_second_answer_counts() -> None:
    async with (
        receiver(answering(OK), host=OUTSIDE) as heard,
        receiver(answering(OK), host=INSIDE, port=heard.port) as inside,
        a_poster([OUTSIDE], [INSIDE]) as (poster, server),
    ):
        url = f"http://{NAME}:{heard.port}/"
        # The connection is kept, and with it the address.
        assert [(await poster.post(url, {}, b"{}")).status for _ in range(3)] == [200] * 3
    assert (heard.connections, inside.connections, server.asked) == (1, 0, [NAME])


@pytest.mark.parametrize("written", ["::1", "0:0:0:0:0:0:0:1", "0::0001", "::ffff:127.0.0.8"])
async def test_an_address_is_told_in_whatever_way_it_is_written(written: str) -> None:
    host = OUTSIDE if OUTSIDE in written else "::1"
    async with (
        receiver(answering(OK), host=host) as heard,
        a_poster(reach=Reach.of([host], ports=[], http=True)) as (poster, _),
    ):
        answer = await poster.post(f"http://[{written}]:{heard.port}/", {}, b"{}")
    assert (answer.status, answer.error) == (200, "")


async def test_a_name_without_an_address_may_have_one_later() -> None:
    async with a_poster([]) as (poster, _):
        answer = await poster.post(f"http://{NAME}/", {}, b"{}")
    assert (answer.error, answer.refused) == ("its name cannot be resolved", False)


async def test_names_are_asked_for_as_they_are_and_not_in_the_domains_of_a_cluster() -> None:
    asked: list[str] = []

    async def lookup(name: str) -> Sequence[str]:
        asked.append(name)
        raise OSError("no such name")

    reach = Reach.of(["hooks.tools.svc"], http=True)
    async with a_poster([], reach=reach, lookup=lookup) as (poster, _):
        for host in (NAME, f"{NAME}.", "hooks.tools.svc"):
            await poster.post(f"http://{host}/", {}, b"{}")
    # Who opens a name of inside means the one that the cluster knows.
    assert asked == [f"{NAME}.", f"{NAME}.", "hooks.tools.svc"]


async def test_the_system_is_asked_where_nothing_else_is_given() -> None:
    reach = Reach.of(["localhost", INSIDE, "::1"], ports=[], http=True)
    async with (
        receiver(answering(OK), host=INSIDE) as heard,
        Poster(Guard(reach), total_s=60, answer_bytes=9, proxies=Proxies.none()) as poster,
    ):
        answer = await poster.post(f"http://localhost:{heard.port}/", {}, b"{}")
    assert answer.status == 200


async def test_a_connection_that_ends_up_elsewhere_is_given_to_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with (
        receiver(answering(OK), host=OUTSIDE) as heard,
        receiver(answering(OK), host=INSIDE, port=heard.port) as inside,
        a_poster([OUTSIDE]) as (poster, _),
    ):
        loop = asyncio.get_running_loop()
        connect = loop.sock_connect

        async def elsewhere(sock: socket.socket, address: Any) -> None:
            to = INSIDE if address[0] == OUTSIDE else address[0]
            await connect(sock, (to, *address[1:]))

        monkeypatch.setattr(loop, "sock_connect", elsewhere)
        answer = await poster.post(f"http://{NAME}:{heard.port}/", {}, b"{}")
    assert answer.refused
    assert "another address" in answer.error
    assert (inside.requests, heard.connections) == ([], 0)


async def test_tls_is_verified_for_the_name_that_was_given(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    trusting = ssl.create_default_context(cafile=str(authority.file))
    for hosts, tls, status in (
        ((NAME,), trusting, 200),
        (("other.example.com",), trusting, None),
        ((NAME,), None, None),
    ):
        serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        serving.load_cert_chain(*authority.issue("receiver", *hosts))
        async with (
            receiver(answering(OK), host=OUTSIDE, tls=serving) as heard,
            a_poster([OUTSIDE], tls=tls) as (poster, _),
        ):
            answer = await poster.post(f"https://{NAME}:{heard.port}/", {}, b"{}")
        assert answer.status == status
        if status is None:
            assert answer.error == "its certificate is not valid for it"
            assert heard.requests == []


@pytest.mark.parametrize(("address", "allowed"), CONNECTED)
def test_the_guard_allows_an_address_or_not(address: str, allowed: bool) -> None:
    guard = Guard(Reach.of([]), own=lambda _: False)
    assert (guard.allows(address, 443, "example.com") is None) is allowed
    assert guard.allows(address, 5432, "example.com") is not None


@pytest.mark.parametrize(("host", "taken"), SUBMITTED)
def test_the_guard_takes_a_url_or_not(host: str, taken: bool) -> None:
    guard = Guard(Reach.of([]))
    if taken:
        guard.check_url("callback_url", f"https://{host}/")
    else:
        with pytest.raises(InvalidArgument):
            guard.check_url("callback_url", f"https://{host}/")


def test_own_addresses_are_those_that_are_asked_from_themselves() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        # A documentation address: nothing is sent, and only the way to it is looked up.
        try:
            asking.connect(("192.0.2.1", 9))
        except OSError:
            pytest.fail("this machine has no network that is not its own")
        own = asking.getsockname()[0]
    assert is_own(own)
    assert is_own("127.0.0.1")
    assert not is_own("192.0.2.1")


def test_the_senders_own_address_is_refused_unless_it_is_named() -> None:
    def own(address: str) -> bool:
        return address == "10.1.2.3"

    assert Guard(Reach.of(["10.0.0.0/8"]), own=own).allows("10.1.2.4", 443, "h") is None
    assert Guard(Reach.of(["10.0.0.0/8"]), own=own).allows("10.1.2.3", 443, "h") is not None
    assert Guard(Reach.of(["10.1.2.3"]), own=own).allows("10.1.2.3", 443, "h") is None
    own_public = Guard(Reach.of([]), own=lambda _: True)
    assert own_public.allows("8.8.8.8", 443, "example.com") == "8.8.8.8 is the sender's own"


async def test_where_nobody_can_say_whose_an_address_is_nothing_connects() -> None:
    def unknown(_: str) -> bool:
        raise OSError("no way leads there")

    async with (
        receiver(answering(OK), host=OUTSIDE) as heard,
        name_server({NAME: [["192.0.2.7"]]}) as server,
        Poster(
            Guard(Reach.of(["192.0.2.0/24"], http=True, ports=[]), own=unknown),
            total_s=60,
            answer_bytes=9,
            proxies=Proxies.none(),
            lookup=Client(server.address),
        ) as poster,
    ):
        answer = await poster.post(f"http://{NAME}:{heard.port}/", {}, b"{}")
    assert (answer.error, answer.refused) == ("it cannot be reached", False)
