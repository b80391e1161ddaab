"""The host's bridge, the cable to the node and the routes to its pods and services."""

from __future__ import annotations

import json
from typing import Any

from queue_operator.devcluster.commands import run, succeeds
from queue_operator.devcluster.errors import NotOurs
from queue_operator.devcluster.network import AddressPlan


def ensure_bridge(plan: AddressPlan, owner: str) -> None:
    """Gives the host its address, on a link that stays while the node comes and goes. `owner` is
    the cluster's folder, which the link names.

    Raises:
        NotOurs: the link is that of a cluster with another folder.

    """
    if not _link(plan.bridge):
        run(["ip", "link", "add", plan.bridge, "type", "bridge"])
    elif not _is_of(plan, owner):
        raise NotOurs(
            f"the link {plan.bridge} belongs to {_owner(plan)} and not to this cluster, whose "
            "addresses go with that name: take one of the two down, and start it again"
        )
    run(["ip", "link", "set", "dev", plan.bridge, "alias", owner])
    run(["ip", "address", "replace", f"{plan.host}/24", "dev", plan.bridge])
    run(["ip", "link", "set", plan.bridge, "up"])


def ensure_cable(plan: AddressPlan, node_pid: int) -> None:
    """Connects the node's network namespace and routes its pods and services to it."""
    inside = ["nsenter", f"--target={node_pid}", "--net", "--", "ip"]
    if not succeeds([*inside, "link", "show", "eth0"]):
        run(["ip", "link", "delete", plan.veth]) if _link(plan.veth) else None
        peer = ["peer", "name", "eth0", "netns", str(node_pid)]
        run(["ip", "link", "add", plan.veth, "type", "veth", *peer])
    run(["ip", "link", "set", plan.veth, "master", plan.bridge, "up"])
    run([*inside, "address", "replace", f"{plan.node}/24", "dev", "eth0"])
    run([*inside, "link", "set", "eth0", "up"])
    run([*inside, "route", "replace", "default", "via", plan.host])
    # The route to services lets the API server reach webhooks and aggregated APIs.
    for cidr in (plan.pod_cidr, plan.service_cidr):
        run(["ip", "route", "replace", cidr, "via", str(plan.node), "dev", plan.bridge])


def remove(plan: AddressPlan, owner: str) -> None:
    """Deletes both links, unless they are another cluster's; their addresses and routes go with
    them.
    """
    if not _is_of(plan, owner):
        return
    for name in (plan.veth, plan.bridge):
        # A veth can vanish between the look and the deletion: its namespace is ending.
        if _link(name) and not succeeds(["ip", "link", "delete", name]) and _link(name):
            run(["ip", "link", "delete", name])


def _is_of(plan: AddressPlan, owner: str) -> bool:
    """Whether the bridge is that of `owner`; one that names nobody was being made."""
    return _owner(plan) in ("", owner)


def _owner(plan: AddressPlan) -> str:
    """Whom the bridge names. Without a name it is nobody's while it has no address but ours."""
    link = _link(plan.bridge) or {}
    if name := link.get("ifalias"):
        return str(name)
    entries = json.loads(run(["ip", "-j", "address", "show", "dev", plan.bridge])) if link else []
    others = [
        address["local"]
        for entry in entries
        for address in entry.get("addr_info", ())
        if address.get("family") == "inet" and address["local"] != plan.host
    ]
    return f"somebody with the address {others[0]}" if others else ""


def _link(name: str) -> dict[str, Any] | None:
    links: list[dict[str, Any]] = json.loads(run(["ip", "-j", "link"]))
    return next((link for link in links if link["ifname"] == name), None)
