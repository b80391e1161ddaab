"""Where callbacks may go: schemes, ports, names and addresses, in whatever way they are written.

Only what is public may be called, unless `allow` opens it. Public is what the tables below leave,
and not what a library takes for it: libraries differ, and differ again by version.
"""

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Final, Self
from urllib.parse import urlsplit

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

DEFAULT_PORTS: Final = (80, 443, 8080, 8443)
_PORT_OF: Final = {"http": 80, "https": 443}
_UNICAST: Final = IPv6Network("2000::/3")
"""All of IPv6 that anybody was ever given; the rest is for something else, or for later."""
_TRANSLATED: Final = IPv6Network("64:ff9b::/96")
"""NAT64: what a resolver (DNS64) makes of IPv4 addresses where there is no other network."""

# Opened by nothing but an entry that lies within: whoever opens 10.0.0.0/8, or everything, does
# not think of these.
_CLOSED: Final = tuple(
    (ipaddress.ip_network(network), what)
    for network, what in (
        ("169.254.169.254/32", "the metadata service of clouds"),
        ("169.254.170.2/32", "the metadata service of clouds"),
        ("100.100.100.200/32", "the metadata service of a cloud"),
        ("168.63.129.16/32", "the metadata service of a cloud"),
        ("192.0.0.192/32", "the metadata service of a cloud"),
        ("fd00:ec2::/32", "the metadata service of a cloud"),
        ("fd20:ce::254/128", "the metadata service of a cloud"),
        ("0.0.0.0/8", "this very machine"),
        ("127.0.0.0/8", "this very machine"),
        ("169.254.0.0/16", "of the local link"),
        ("224.0.0.0/4", "of a group (multicast)"),
        ("240.0.0.0/4", "reserved"),
        ("::/128", "this very machine"),
        ("::1/128", "this very machine"),
        ("::/8", "reserved"),
        ("fe80::/10", "of the local link"),
        ("fec0::/10", "of a site"),
        ("ff00::/8", "of a group (multicast)"),
    )
)
LOOPBACK: Final = (IPv4Network("127.0.0.0/8"), IPv6Network("::1/128"))
_NOT_PUBLIC: Final = tuple(
    ipaddress.ip_network(network)
    for network in (
        "10.0.0.0/8",
        "100.64.0.0/10",  # providers' own, and pods of some clouds
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",  # documentation
        "192.52.193.0/24",  # AMT
        "192.88.99.0/24",  # relays of 6to4
        "192.168.0.0/16",
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "2001::/23",  # Teredo, benchmarks, ORCHID
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4
        "3fff::/20",  # documentation
    )
)
_INSIDE: Final = (
    "arpa",
    "cluster.local",
    "corp",
    "home",
    "internal",
    "intranet",
    "invalid",
    "lan",
    "local",
    "localdomain",
    "localhost",
    "pod",
    "private",
    "svc",
)
"""Ends of names that mean something inside, or nothing."""
_AUTHORITY: Final = re.compile(
    r"(?:\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<name>[A-Za-z0-9._-]+))(?::(?P<port>[0-9]{0,5}))?"
)
_LABEL: Final = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)")
_NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*")
_MAX_NAME: Final = 253
_OPEN: Final = "whoever runs the queue can open it by the setting webhooks.allow"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """What may be called. `names` and `ends` (of names, with their dot) and `networks` are inside
    targets that were opened; no `ports` are all of them. `closed` says why no URL is taken at all.
    """

    names: frozenset[str] = frozenset()
    ends: tuple[str, ...] = ()
    networks: tuple[Network, ...] = ()
    ports: frozenset[int] = frozenset(DEFAULT_PORTS)
    http: bool = False
    closed: str = ""

    @classmethod
    def nowhere(cls, why: str) -> Self:
        """Of whoever tells nobody: a callback that is taken and never called would be worse. `why`
        also says what to do.
        """
        return cls(closed=f"must be left out: {why}")

    @classmethod
    def of(
        cls, allow: Iterable[str], *, ports: Iterable[int] = DEFAULT_PORTS, http: bool = False
    ) -> Self:
        """`allow` as settings have it: names, `*.ends` of names, addresses and networks.

        Raises ValueError for an entry that is none of these.
        """
        names, ends, networks = set[str](), list[str](), list[Network]()
        for entry in allow:
            found = _entry(entry)
            if not isinstance(found, str):
                networks.append(found)
            elif found.startswith("*"):
                ends.append(found[1:])
            else:
                names.add(found)
        return cls(
            names=frozenset(names),
            ends=tuple(ends),
            networks=tuple(networks),
            ports=frozenset(ports),
            http=http,
        )

    def url_fault(self, url: str) -> str | None:
        """Why `url`, which is one, may not be called, as far as this is seen without asking for
        its name.
        """
        if self.closed:
            return self.closed
        parts = urlsplit(url)
        if parts.scheme == "http" and not self.http:
            return "must begin with https://; http is not allowed here (webhooks.allow_http)"
        found = _AUTHORITY.fullmatch(parts.netloc)
        if found is None:
            return "must have a plain host: a name of letters, digits and -, or an address"
        return self.port_fault(
            int(found["port"] or _PORT_OF.get(parts.scheme, 0))
        ) or self._host_fault(found["six"] or found["name"], found["six"] is not None)

    def port_fault(self, port: int) -> str | None:
        if not self.ports or port in self.ports:
            return None
        listed = ", ".join(map(str, sorted(self.ports)))
        return f"must not name port {port}; allowed are {listed} (webhooks.ports)"

    def address_fault(self, address: str, host: str = "") -> str | None:
        """Why nothing may be sent to `address`, which was found for `host`."""
        try:
            found = plain_address(address)
        except ValueError:
            return f"{address} is no address that can be judged"
        entries = [entry for entry in self.networks if found in entry]
        for network, what in _CLOSED:
            if found in network:
                # Of another version there is none among the entries.
                opened = any(entry.subnet_of(network) for entry in entries)  # type: ignore[arg-type]
                return None if opened else f"{address} is {what}"
        if _is_public(found) or entries or self.names_host(host):
            return None
        return f"{address} is not public"

    def names_host(self, host: str) -> bool:
        """Whether `allow` has the name itself, or its end."""
        name = host.removesuffix(".").lower()
        return name in self.names or (bool(self.ends) and name.endswith(self.ends))

    def names_address(self, address: str) -> bool:
        """Whether `allow` has the very address, or one of this machine's inner network."""
        found = plain_address(address)
        return any(
            found in entry
            and (entry.num_addresses == 1 or any(found in network for network in LOOPBACK))
            for entry in self.networks
        )

    def _host_fault(self, host: str, is_six: bool) -> str | None:
        name = host.lower()
        if is_six or _is_numeric(name):
            try:
                address = IPv6Address(name) if is_six else IPv4Address(name)
            except ValueError:
                return "must have an address as in 192.0.2.1 or [2001:db8::1], or a name"
            fault = self.address_fault(str(address), name)
            return fault and f"must not go inside: {fault}; {_OPEN}"
        name = name.removesuffix(".")
        if len(name) > _MAX_NAME or not all(map(_LABEL.fullmatch, name.split("."))):
            return "must have a plain host: a name of letters, digits and -, or an address"
        if _is_inside(name) and not self.names_host(name):
            return f"must not go inside: {name} is a name of inside; {_OPEN}"
        return None


def plain_address(address: str) -> Address:
    """What is reached by it: the IPv4 address of a mapped or translated one. Raises ValueError."""
    found = ipaddress.ip_address(address)
    if isinstance(found, IPv4Address):
        return found
    if found.scope_id is not None:
        raise ValueError("it has a zone")
    if found in _TRANSLATED:
        return IPv4Address(int(found) & 0xFFFFFFFF)
    return found.ipv4_mapped or found


def _is_public(address: Address) -> bool:
    if any(address in network for network in _NOT_PUBLIC):
        return False
    return address.is_global and (isinstance(address, IPv4Address) or address in _UNICAST)


def _is_numeric(name: str) -> bool:
    """Whether some resolver takes it for an IPv4 address: 127.1, 0x7f.1, 2130706433, 127.0.0.1."""
    labels = name.removesuffix(".").rsplit(".", 1)
    return _NUMBER.fullmatch(labels[-1]) is not None


def _is_inside(name: str) -> bool:
    labels = name.split(".")
    return len(labels) == 1 or labels[-1] in _INSIDE or ".".join(labels[-2:]) in _INSIDE


def _entry(text: str) -> str | Network:
    """A network, or a name in small letters, perhaps with `*.` before it."""
    given = text.strip().lower()
    address = given[1:-1] if given.startswith("[") and given.endswith("]") else given
    if "/" in given or ":" in given or _is_numeric(given):
        try:
            return ipaddress.ip_network(address)
        except ValueError as error:
            raise ValueError(f"{text!r} is no address and no network: {error}") from None
    name = given.removesuffix(".")
    if not all(map(_LABEL.fullmatch, name.removeprefix("*.").split("."))):
        raise ValueError(
            f"{text!r} is no name, address or network; as in hooks.tools.svc, *.tools.svc, "
            "10.1.2.3 or 10.1.0.0/16"
        )
    return name
