"""The command lines of daemons and of other providers' tools."""

import json
import sys
from pathlib import Path

import pytest
import yaml

from queue_operator.devcluster import cgroups, controlplane, kind, toolchain
from queue_operator.devcluster.commands import run, succeeds
from queue_operator.devcluster.errors import CommandFailed, DevClusterError, ToolMissing
from queue_operator.devcluster.existing import ExistingOptions, database_host, view_command
from queue_operator.devcluster.machine import file_system_of
from queue_operator.devcluster.network import AddressPlan
from queue_operator.devcluster.node import write_template
from queue_operator.devcluster.paths import checkout_root
from queue_operator.devcluster.progress import SilentProgress
from queue_operator.devcluster.state import StateFolder

FOLDER = StateFolder(Path("/state/dev"))


def test_every_server_of_the_host_binds_to_the_slots_address() -> None:
    lines = controlplane.commands(FOLDER, AddressPlan(9))
    assert set(lines) == set(controlplane.DAEMONS)
    assert "--listen-client-urls=https://10.99.9.1:2379" in lines["etcd"]
    for name in controlplane.DAEMONS[1:]:
        assert "--bind-address=10.99.9.1" in lines[name]


def test_the_api_server_checks_everybody() -> None:
    line = controlplane.commands(FOLDER, AddressPlan(0))["kube-apiserver"]
    assert "--authorization-mode=Node,RBAC" in line
    assert "--kubelet-certificate-authority=/state/dev/pki/ca.crt" in line
    assert not any(flag.startswith(("--anonymous-auth", "--insecure")) for flag in line)


def test_a_loopback_address_is_not_published_as_an_endpoint() -> None:
    flag = "--endpoint-reconciler-type=none"
    assert flag in controlplane.commands(FOLDER, AddressPlan(0, True))["kube-apiserver"]
    assert flag not in controlplane.commands(FOLDER, AddressPlan(0))["kube-apiserver"]


def test_the_kubelets_configuration_is_closed_to_strangers(tmp_path: Path) -> None:
    source = checkout_root() / "tools" / "cluster" / "node" / "kubelet.yaml"
    names = ("node", "pki", "node_address", "pod_cidr", "cgroup_root")
    write_template(source, tmp_path / "kubelet.yaml", {name: f"/{name}" for name in names})
    content = yaml.safe_load((tmp_path / "kubelet.yaml").read_text())
    assert content["authentication"]["anonymous"] == {"enabled": False}
    assert content["authorization"] == {"mode": "Webhook"}
    assert content["cgroupRoot"] == "/cgroup_root"


def test_a_template_with_a_missing_value_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "in").write_text("${known} ${unknown}")
    with pytest.raises(KeyError, match="unknown"):
        write_template(tmp_path / "in", tmp_path / "out", {"known": "x"})


def test_kind_commands() -> None:
    program = Path("/bin/kind")
    create = kind.create_command(program, "dev-3f9a1c", FOLDER, Path("/state/dev/kind.yaml"))
    assert [str(word) for word in create] == [
        "/bin/kind",
        "create",
        "cluster",
        "--name=dev-3f9a1c",
        "--kubeconfig=/state/dev/kubeconfig/admin.yaml",
        "--config=/state/dev/kind.yaml",
        "--wait=180s",
    ]
    assert [str(word) for word in kind.delete_command(program, "dev-3f9a1c", FOLDER)] == [
        "/bin/kind",
        "delete",
        "cluster",
        "--name=dev-3f9a1c",
        "--kubeconfig=/state/dev/kubeconfig/admin.yaml",
    ]
    load = kind.load_command(program, "dev", Path("/a.tar"))
    assert [str(word) for word in load] == [
        "/bin/kind", "load", "image-archive", "/a.tar", "--name", "dev",
    ]  # fmt: skip


def test_the_ipv4_gateway_of_dockers_network_is_chosen() -> None:
    ranges = [
        {"Subnet": "fc00:f853:ccd:e793::/64", "Gateway": "fc00:f853:ccd:e793::1"},
        {"Subnet": "172.18.0.0/16", "Gateway": "172.18.0.1"},
    ]
    inspection = [{"Name": "kind", "IPAM": {"Config": ranges}}]
    assert kind.docker_network(json.dumps(inspection)) == ("172.18.0.1", "172.18.0.0/16")
    inspection[0]["IPAM"] = {"Config": ranges[:1]}
    with pytest.raises(DevClusterError, match="docker network rm kind"):
        kind.docker_network(json.dumps(inspection))


def test_one_context_of_an_existing_kubeconfig_is_taken() -> None:
    options = ExistingOptions(Path("/home/me/config"), "staging")
    assert [str(word) for word in view_command(Path("kubectl"), options)] == [
        "kubectl", "config", "view", "--minify", "--flatten", "--raw",
        "--kubeconfig", "/home/me/config", "--context", "staging",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("dsn", "host"),
    [("postgresql://me@db.example.org/queue", "db.example.org"), ("dbname=queue", "localhost")],
)
def test_the_host_of_an_existing_database(dsn: str, host: str) -> None:
    assert database_host(dsn) == host


def test_hierarchies_of_both_versions_are_found() -> None:
    mountinfo = (
        "30 23 0:26 / /sys/fs/cgroup/unified rw,nosuid - cgroup2 cgroup2 rw\n"
        "31 23 0:27 / /sys/fs/cgroup/memory rw,nosuid shared:9 - cgroup cgroup rw,memory\n"
        "32 23 0:28 / /sys/fs/bpf rw,nosuid - bpf bpf rw\n"
    )
    assert cgroups.hierarchies(mountinfo) == [
        Path("/sys/fs/cgroup/unified"),
        Path("/sys/fs/cgroup/memory"),
    ]


def test_the_innermost_last_mount_decides_the_file_system() -> None:
    mountinfo = (
        "20 1 0:1 / / rw - overlay overlay rw\n"
        "21 20 0:2 / /usr rw - ext4 /dev/vda rw\n"
        "22 20 0:3 / /usr rw - xfs /dev/vdb rw\n"
    )
    assert file_system_of(Path("/usr/bin"), mountinfo) == "xfs"
    assert file_system_of(Path("/etc"), mountinfo) == "overlay"


def test_processes_make_room_for_control_groups(tmp_path: Path) -> None:
    (tmp_path / "cgroup.procs").write_text("17\n")
    cgroups._move_to_leaf(tmp_path)
    assert (tmp_path / "host" / "cgroup.procs").read_text() == "17"


def test_present_packages_are_not_installed_again() -> None:
    toolchain.ensure_debian_packages({"coreutils": "ls"}, SilentProgress())


def test_missing_packages_name_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain, "is_root", lambda: False)
    with pytest.raises(
        ToolMissing, match="apt-get update && apt-get install --no-install-recommends nothing-such"
    ):
        toolchain.ensure_debian_packages({"nothing-such": "no-such-program"}, SilentProgress())


def test_a_failed_command_carries_its_output() -> None:
    program = "import sys; print('said'); sys.exit(3)"
    with pytest.raises(CommandFailed, match="ended with status 3:\nsaid") as failure:
        run([sys.executable, "-c", program])
    assert failure.value.status == 3
    assert not succeeds([sys.executable, "-c", program])
    assert not succeeds(["no-such-program"])


def test_programs_of_root_are_found_without_roots_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/bin")
    path = run(["sh", "-c", "echo $PATH"]).strip().split(":")
    assert path[0] == "/bin"
    assert {"/usr/sbin", "/sbin"} <= set(path)
