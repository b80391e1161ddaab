"""`down` leaves nothing behind, whatever was killed before."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from queue_operator.devcluster import ClusterInfo, DevClusterError, cgroups, down, links, status, up
from queue_operator.devcluster.commands import run
from queue_operator.devcluster.errors import NotOurs
from queue_operator.devcluster.network import AddressPlan
from queue_operator.devcluster.pause import IMAGE
from queue_operator.devcluster.processes import (
    ProcessIdentity,
    all_processes,
    marked,
    recorded,
    wait_until,
)
from queue_operator.devcluster.state import StateFolder, existing_folder, folder_of

NAME = "test-crash"


@pytest.fixture
def folder() -> Iterator[StateFolder]:
    """The state folder of a second cluster, which the test starts and removes."""
    folder = folder_of(NAME)
    yield folder
    if folder.exists():
        down(NAME)


def test_two_clusters_side_by_side_and_a_clean_end_after_a_crash(
    cluster: ClusterInfo, folder: StateFolder, tmp_path: Path
) -> None:
    other = up(NAME, "local")
    assert other.host_address != cluster.host_address
    assert status(cluster.name).ready
    assert status(NAME).ready
    _run_pod(other, tmp_path)
    containers = _processes_in_cgroups(folder)
    assert containers, "the pod's processes are in the cluster's own control groups"
    everything = [*marked(folder), *containers]
    plan = folder.plan()
    assert plan is not None

    for part in ("kubelet", "containerd"):
        killed = recorded(folder, part)
        assert killed is not None
        killed.kill()
    down(NAME)

    assert not any(process.alive() for process in everything)
    assert not cgroups.leftovers(NAME)
    assert not folder.exists()
    assert str(folder.path) not in Path("/proc/self/mountinfo").read_text()
    assert not {plan.bridge, plan.veth} & {link["ifname"] for link in _ip("link")}
    assert plan.pod_cidr not in {route["dst"] for route in _ip("route")}
    assert not Path("/var/lib/kubelet").exists()
    assert status(cluster.name).ready, "the other cluster is untouched"


@pytest.mark.parametrize("reached", ["etcd", "node-init"])
def test_down_after_up_was_killed_midway(reached: str, folder: StateFolder) -> None:
    _kill_up_when(folder, lambda: (folder.processes / f"{reached}.json").exists())
    everything = list(marked(folder))
    assert everything
    down(NAME)
    assert not any(process.alive() for process in everything)
    assert not folder.exists()
    assert not cgroups.leftovers(NAME)


def test_up_after_up_was_killed_midway(folder: StateFolder) -> None:
    _kill_up_when(folder, lambda: (folder.processes / "kube-apiserver.json").exists())
    info = up(NAME)
    assert status(NAME).ready
    assert info == existing_folder(NAME).info()


def test_down_needs_a_cluster() -> None:
    with pytest.raises(DevClusterError, match="dev up --name no-such"):
        down("no-such")


PLAN = AddressPlan(62)


@pytest.fixture
def bridge() -> Iterator[None]:
    """A link that has the name of one of ours."""
    run(["ip", "link", "add", PLAN.bridge, "type", "bridge"])
    yield
    run(["ip", "link", "delete", PLAN.bridge])


@pytest.mark.usefixtures("bridge")
@pytest.mark.parametrize(
    "mark",
    [
        ["link", "set", "dev", PLAN.bridge, "alias", "/var/lib/another/dev"],
        ["address", "add", "192.0.2.1/32", "dev", PLAN.bridge],
    ],
)
def test_a_link_of_somebody_elses_is_left_alone(mark: list[str]) -> None:
    run(["ip", *mark])
    owner = r"/var/lib/another/dev|somebody with the address 192\.0\.2\.1"
    with pytest.raises(NotOurs, match=rf"the link {PLAN.bridge} belongs to ({owner})"):
        links.ensure_bridge(PLAN, "/var/lib/ours/dev")
    links.remove(PLAN, "/var/lib/ours/dev")
    assert PLAN.bridge in {link["ifname"] for link in _ip("link")}


@pytest.mark.usefixtures("bridge")
def test_a_link_that_was_being_made_is_made_whole(folder: StateFolder) -> None:
    links.ensure_bridge(PLAN, str(folder.path))
    links.ensure_bridge(PLAN, str(folder.path))
    [ours] = [link for link in _ip("address") if link["ifname"] == PLAN.bridge]
    [link] = [one for one in _ip("link") if one["ifname"] == PLAN.bridge]
    assert link["ifalias"] == str(folder.path)
    assert [one["local"] for one in ours["addr_info"] if one["family"] == "inet"] == [PLAN.host]


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    """A process in the control groups that a cluster of that name would have."""
    cgroups.create(NAME)
    process = subprocess.Popen(["sleep", "600"])
    for group in cgroups.leftovers(NAME):
        (group / "cgroup.procs").write_text(str(process.pid))
    yield process
    process.kill()
    process.wait()
    cgroups.remove(NAME)


def test_processes_of_a_cluster_with_its_state_elsewhere_are_left_alone(
    stranger: subprocess.Popen[bytes], folder: StateFolder
) -> None:
    with pytest.raises(NotOurs, match="holds processes of another cluster 'test-crash'"):
        up(NAME, "local")
    assert stranger.poll() is None
    assert not folder.exists()


def _kill_up_when(folder: StateFolder, condition: Callable[[], bool]) -> None:
    program = f"from queue_operator.devcluster import up; up({folder.name!r}, 'local')"
    starting = subprocess.Popen([sys.executable, "-c", program])
    wait_until(condition, "the start", 60)
    os.kill(starting.pid, signal.SIGKILL)
    starting.wait()


def _run_pod(cluster: ClusterInfo, folder: Path) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "idle"},
        "spec": {"containers": [{"name": "main", "image": IMAGE, "imagePullPolicy": "Never"}]},
    }
    path = folder / "pod.json"
    path.write_text(json.dumps(pod))
    kubectl = [str(cluster.kubectl), f"--kubeconfig={cluster.kubeconfig}"]
    wait_until(lambda: _has_service_account(kubectl), "the default service account", 30)
    run([*kubectl, "apply", f"--filename={path}"])
    run([*kubectl, "wait", "--for=condition=Ready", "pod/idle", "--timeout=60s"])


def _has_service_account(kubectl: list[str]) -> bool:
    return "default" in run([*kubectl, "get", "serviceaccounts", "-o=name"])


def _processes_in_cgroups(folder: StateFolder) -> list[ProcessIdentity]:
    wanted = f"/{cgroups.group_name(folder.name)}/"
    return [
        process
        for process in all_processes()
        if wanted in Path(f"/proc/{process.pid}/cgroup").read_text()
    ]


def _ip(what: str) -> list[dict[str, Any]]:
    answer: list[dict[str, Any]] = json.loads(run(["ip", "-j", what]))
    return answer
