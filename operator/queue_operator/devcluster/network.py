"""The addresses of a cluster: a pure function of its slot, so that several fit on one machine."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from ipaddress import IPv4Network
from typing import Any

from queue_operator.devcluster.commands import run
from queue_operator.devcluster.errors import DevClusterError

SLOTS = 64
API_PORT = 6443
ETCD_PORT = 2379
ETCD_PEER_PORT = 2380
POSTGRES_PORT = 5432
CONTROLLER_MANAGER_PORT = 10257
SCHEDULER_PORT = 10259
HOST_PORTS = (
    API_PORT,
    ETCD_PORT,
    ETCD_PEER_PORT,
    POSTGRES_PORT,
    CONTROLLER_MANAGER_PORT,
    SCHEDULER_PORT,
)


@dataclass(frozen=True)
class AddressPlan:
    """Every address and link name of one cluster.

    Attributes:
        slot: 0 to 63, exclusive to one running cluster.
        loopback: without root there is no node and the servers bind to a loopback address.

    """

    slot: int
    loopback: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.slot < SLOTS:
            raise ValueError(f"slot must be between 0 and {SLOTS - 1}, not {self.slot}")

    @property
    def host(self) -> str:
        """The address of the control plane and of Postgres."""
        return f"127.99.{self.slot}.1" if self.loopback else f"10.99.{self.slot}.1"

    @property
    def node(self) -> str | None:
        return None if self.loopback else f"10.99.{self.slot}.2"

    @property
    def host_cidr(self) -> str:
        """Where connections from the host and the node come from."""
        return "127.0.0.0/8" if self.loopback else f"10.99.{self.slot}.0/24"

    @property
    def pod_cidr(self) -> str:
        return f"10.128.{self.slot}.0/24"

    @property
    def service_cidr(self) -> str:
        return f"10.129.{self.slot}.0/24"

    @property
    def ranges(self) -> tuple[IPv4Network, ...]:
        """What the host gets routes to; whoever has an address there would be cut off."""
        node = f"10.99.{self.slot}.0/24"
        return tuple(map(IPv4Network, (node, self.pod_cidr, self.service_cidr)))

    @property
    def kubernetes_service(self) -> str:
        """The cluster address of the API server: the first of the service range."""
        return f"10.129.{self.slot}.1"

    @property
    def bridge(self) -> str:
        """The host's link that carries its address, with or without a living node."""
        return f"qo{self.slot}"

    @property
    def veth(self) -> str:
        """The host's end of the cable to the node."""
        return f"qo{self.slot}v"

    @property
    def api_url(self) -> str:
        return f"https://{self.host}:{API_PORT}"


def choose_slot(
    taken: Iterable[int],
    loopback: bool,
    is_free: Callable[[AddressPlan], bool] | None = None,
) -> AddressPlan:
    """The lowest slot that no cluster holds and whose addresses nobody uses.

    Raises:
        DevClusterError: all slots are in use.

    """
    free = addresses_are_free if is_free is None else is_free
    held = set(taken)
    for slot in range(SLOTS):
        plan = AddressPlan(slot, loopback)
        if slot not in held and free(plan):
            return plan
    raise DevClusterError(
        f"all {SLOTS} address slots are in use: stop a cluster with `queue-operator dev down`"
    )


def addresses_are_free(plan: AddressPlan) -> bool:
    """Whether this machine uses neither the addresses nor the ports of a plan."""
    if plan.loopback:
        return all(_can_bind(plan.host, port) for port in HOST_PORTS)
    links = json.loads(run(["ip", "-j", "address"]))
    if plan.bridge in {link.get("ifname") for link in links}:
        return False
    routes = json.loads(run(["ip", "-j", "route"]))
    return not any(
        used.subnet_of(ours) for ours in plan.ranges for used in used_ranges(links, routes)
    )


def used_ranges(
    links: Iterable[dict[str, Any]], routes: Iterable[dict[str, Any]]
) -> list[IPv4Network]:
    """What this machine has addresses in or routes to, from `ip -j address` and `route`."""
    addresses = (entry for link in links for entry in link.get("addr_info", ()))
    found = [entry["local"] for entry in addresses if entry.get("family") == "inet"]
    found += [route["dst"] for route in routes if route["dst"] != "default"]
    return [IPv4Network(text, strict=False) for text in found]


def choose_port(host: str, first: int, count: int) -> int:
    """The first port of a range that nobody has bound on an address.

    Raises:
        DevClusterError: all are in use.

    """
    for port in range(first, first + count):
        if _can_bind(host, port):
            return port
    raise DevClusterError(f"ports {first} to {first + count - 1} of {host} are all in use")


def _can_bind(host: str, port: int) -> bool:
    with socket.socket() as candidate:
        candidate.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            candidate.bind((host, port))
        except OSError:
            return False
    return True
