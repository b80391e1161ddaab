"""The address plan and the choice of a slot."""

import ipaddress
import itertools
import socket

import pytest

from queue_operator.devcluster.errors import DevClusterError
from queue_operator.devcluster.network import (
    SLOTS,
    AddressPlan,
    choose_port,
    choose_slot,
    used_ranges,
)


def test_the_plan_of_a_slot() -> None:
    plan = AddressPlan(7)
    assert (plan.host, plan.node) == ("10.99.7.1", "10.99.7.2")
    assert (plan.pod_cidr, plan.service_cidr) == ("10.128.7.0/24", "10.129.7.0/24")
    assert plan.api_url == "https://10.99.7.1:6443"


def test_without_root_there_is_a_loopback_address_and_no_node() -> None:
    plan = AddressPlan(3, loopback=True)
    assert (plan.host, plan.node, plan.host_cidr) == ("127.99.3.1", None, "127.0.0.0/8")


def test_no_two_plans_overlap() -> None:
    networks = [
        ipaddress.ip_network(cidr)
        for plan in map(AddressPlan, range(SLOTS))
        for cidr in (plan.host_cidr, plan.pod_cidr, plan.service_cidr)
    ]
    ordered = sorted(networks)
    assert not any(left.overlaps(right) for left, right in itertools.pairwise(ordered))


@pytest.mark.parametrize("slot", range(SLOTS))
def test_addresses_lie_in_their_ranges_and_names_fit_the_kernel(slot: int) -> None:
    plan = AddressPlan(slot)
    assert ipaddress.ip_address(plan.host) in ipaddress.ip_network(plan.host_cidr)
    assert ipaddress.ip_address(str(plan.node)) in ipaddress.ip_network(plan.host_cidr)
    service = next(ipaddress.ip_network(plan.service_cidr).hosts())
    assert plan.kubernetes_service == str(service)
    assert max(len(plan.bridge), len(plan.veth)) <= 15


@pytest.mark.parametrize("slot", [-1, SLOTS])
def test_a_slot_outside_the_range_is_refused(slot: int) -> None:
    with pytest.raises(ValueError, match="slot must be between 0 and 63"):
        AddressPlan(slot)


def test_the_lowest_free_slot_is_chosen() -> None:
    plan = choose_slot({0, 2}, loopback=False, is_free=lambda plan: plan.slot != 1)
    assert plan == AddressPlan(3)


def test_no_free_slot_says_what_to_do() -> None:
    with pytest.raises(DevClusterError, match="dev down"):
        choose_slot(range(SLOTS), loopback=True, is_free=lambda plan: True)


def test_a_network_that_the_machine_is_part_of_is_left_alone() -> None:
    # As on a machine of Google's cloud, whose default network is where our pods would be.
    links = [{"ifname": "ens4", "addr_info": [{"family": "inet", "local": "10.128.0.7"}]}]
    routes = [{"dst": "default"}, {"dst": "10.128.0.1"}, {"dst": "10.0.0.0/8"}]
    used = used_ranges(links, routes)
    assert [str(network) for network in used] == ["10.128.0.7/32", "10.128.0.1/32", "10.0.0.0/8"]

    def cut_off(plan: AddressPlan) -> bool:
        return any(network.subnet_of(ours) for network in used for ours in plan.ranges)

    # A wide route, as of a VPN, goes on beside our narrow ones.
    assert [cut_off(AddressPlan(slot)) for slot in (0, 1)] == [True, False]


def test_a_bound_port_is_not_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(DevClusterError, match=str(port)):
            choose_port("127.0.0.1", port, 1)
    assert choose_port("127.0.0.1", port, 1) == port


def test_a_loopback_slot_with_a_server_on_it_is_passed_over() -> None:
    first = choose_slot((), loopback=True)
    with socket.create_server((first.host, 6443)):
        assert choose_slot((), loopback=True).slot > first.slot
