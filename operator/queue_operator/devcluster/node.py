"""The node: namespaces of its own, and in them containerd, kubelet, kube-proxy and CoreDNS.

Its first process holds the namespaces. When that ends, the kernel ends every
other process of the node, and with the last one all its mounts and links go.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from string import Template

from queue_operator.devcluster import cgroups, links, processes
from queue_operator.devcluster.commands import SYSTEM_PATH, run, succeeds
from queue_operator.devcluster.errors import NotReady
from queue_operator.devcluster.machine import file_system_of
from queue_operator.devcluster.network import AddressPlan
from queue_operator.devcluster.pause import IMAGE as PAUSE_IMAGE
from queue_operator.devcluster.progress import Progress
from queue_operator.devcluster.state import StateFolder

INIT = "node-init"
DAEMONS = ("containerd", "kubelet", "kube-proxy", "coredns")
START_TIMEOUT_S = 180.0
# Namespaces of the first process that each daemon enters; `ip netns exec` would
# mount /sys again and hide the control groups.
NAMESPACES = ("--mount", "--net", "--pid", "--uts")


class Node:
    """The one node of a local cluster."""

    def __init__(
        self, folder: StateFolder, plan: AddressPlan, binaries: Path, configuration: Path
    ) -> None:
        self._folder = folder
        self._plan = plan
        self._binaries = binaries
        self._configuration = configuration

    def start(self, kubectl: Path, pause_archive: Path, progress: Progress) -> None:
        """Starts what is not running and returns when the node is Ready."""
        with progress.step("starting the node: namespaces, containerd"):
            self._start_init()
            self._write_configuration()
            self._ensure("containerd", self._containerd())
            self._wait_for_containerd(pause_archive)
        with progress.step("starting the node: kubelet, kube-proxy, CoreDNS"):
            manifests = self._configuration.parent / "manifests"
            kubeconfig = f"--kubeconfig={self._folder.kubeconfig('admin')}"
            run([kubectl, kubeconfig, "apply", "-f", manifests])
            self._ensure("kubelet", self._kubelet())
            self._ensure("kube-proxy", self._kube_proxy())
            self._ensure("coredns", self._coredns())
            processes.wait_until(
                lambda: self.ready(kubectl),
                f"the node; see {self._folder.logs}/kubelet.log",
                START_TIMEOUT_S,
            )

    def ready(self, kubectl: Path) -> bool:
        for name in DAEMONS:
            if not processes.is_running(self._folder, name):
                raise NotReady(f"{name} ended: see {self._folder.logs}/{name}.log")
        return node_ready(kubectl, self._folder)

    def _start_init(self) -> None:
        if not processes.is_running(self._folder, INIT):
            cgroups.create(self._folder.name)
            ready = self._folder.node / "ready"
            ready.unlink(missing_ok=True)
            wrapper = processes.spawn(self._folder, INIT, self._unshare())
            identity = processes.child_of(self._folder, wrapper, INIT)
            processes.record(self._folder, INIT, identity)
            processes.wait_until(ready.exists, f"{INIT}; see {self._folder.logs}/{INIT}.log", 60)
        links.ensure_cable(self._plan, self._init_pid())

    def _init_pid(self) -> int:
        identity = processes.recorded(self._folder, INIT)
        if identity is None:
            raise NotReady(f"{INIT} was not started")
        return identity.pid

    def _unshare(self) -> list[str | Path]:
        script = self._configuration / "init.sh"
        isolate = ["unshare", *NAMESPACES, "--fork", "--mount-proc", "--propagation", "private"]
        state, binaries = self._folder.path.resolve(), self._binaries.resolve()
        name = node_name(self._folder)
        return [*isolate, "--kill-child=SIGKILL", "sh", script, state, binaries, name]

    def _ensure(self, name: str, command: list[str | Path]) -> None:
        if processes.is_running(self._folder, name):
            return
        enter: list[str | Path] = ["nsenter", f"--target={self._init_pid()}", *NAMESPACES, "--"]
        wrapper = processes.spawn(self._folder, name, enter + command, env=_daemon_environment())
        processes.record(self._folder, name, processes.child_of(self._folder, wrapper, name))

    def _wait_for_containerd(self, pause_archive: Path) -> None:
        ctr = ctr_command(self._binaries, self._folder)
        processes.wait_until(
            lambda: succeeds([*ctr, "version"], timeout_s=5),
            f"containerd; see {self._folder.logs}/containerd.log",
            START_TIMEOUT_S,
        )
        if PAUSE_IMAGE not in run([*ctr, "images", "list", "-q"]).split():
            import_image(ctr, pause_archive)

    def _write_configuration(self) -> None:
        values = self._values()
        for name in ("containerd.toml", "kubelet.yaml", "Corefile"):
            write_template(self._configuration / name, self._folder.node / name, values)
        network = self._folder.node / "cni"
        network.mkdir(exist_ok=True)
        write_template(
            self._configuration / "10-bridge.conflist", network / "10-bridge.conflist", values
        )
        (self._folder.node / "resolv.conf").write_text(f"nameserver {self._plan.node}\n")

    def _values(self) -> dict[str, str]:
        return {
            "node": str(self._folder.node.resolve()),
            "pki": str(self._folder.pki.resolve()),
            "kubeconfigs": str(self._folder.kubeconfig("coredns").parent.resolve()),
            "binaries": str(self._binaries.resolve()),
            "node_address": str(self._plan.node),
            "pod_cidr": self._plan.pod_cidr,
            "cgroup_root": f"/{cgroups.group_name(self._folder.name)}",
            "pause_image": PAUSE_IMAGE,
            "snapshotter": _snapshotter(self._folder.node),
        }

    def _containerd(self) -> list[str | Path]:
        return [
            self._binaries / "containerd",
            "--config",
            self._folder.node / "containerd.toml",
            "--log-level=warn",
        ]

    def _kubelet(self) -> list[str | Path]:
        return [
            self._binaries / "kubelet",
            f"--config={self._folder.node / 'kubelet.yaml'}",
            f"--kubeconfig={self._folder.kubeconfig('node')}",
            f"--hostname-override={node_name(self._folder)}",
            f"--node-ip={self._plan.node}",
        ]

    def _kube_proxy(self) -> list[str | Path]:
        return [
            self._binaries / "kube-proxy",
            f"--kubeconfig={self._folder.kubeconfig('proxy')}",
            "--proxy-mode=nftables",
            f"--cluster-cidr={self._plan.pod_cidr}",
            f"--hostname-override={node_name(self._folder)}",
            # Zero leaves the limits of the machine alone.
            "--conntrack-max-per-core=0",
            "--conntrack-tcp-timeout-established=0",
            "--conntrack-tcp-timeout-close-wait=0",
        ]

    def _coredns(self) -> list[str | Path]:
        return [self._binaries / "coredns", "-conf", self._folder.node / "Corefile"]


def prepare_host(plan: AddressPlan, folder: StateFolder) -> None:
    """Gives the host its address, to which Postgres and the control plane bind."""
    links.ensure_bridge(plan, str(folder.path))


def import_image(ctr: list[str | Path], archive: Path) -> None:
    run([*ctr, "images", "import", archive])


def load_image(ctr: list[str | Path], archive: Path, loaded: Path) -> None:
    """Imports an archive, unless the folder `loaded` says that this very file was before."""
    details = archive.stat()
    mark = loaded / f"{archive.name}-{details.st_size}-{details.st_mtime_ns}"
    if not mark.exists():
        import_image(ctr, archive)
        loaded.mkdir(exist_ok=True)
        mark.touch()


def stop(folder: StateFolder, plan: AddressPlan | None) -> None:
    """Ends the node and removes its links and control groups; works on any remains."""
    identity = processes.recorded(folder, INIT)
    if identity is not None:
        identity.kill()
    processes.kill_marked(folder)
    cgroups.remove(folder.name)
    if plan is not None:
        links.remove(plan, str(folder.path))


def node_name(folder: StateFolder) -> str:
    return f"{folder.name}-node"


def node_ready(kubectl: Path, folder: StateFolder) -> bool:
    """Whether the API server says that the node is Ready."""
    conditions = "{.status.conditions[?(@.type=='Ready')].status}"
    query = ["get", "node", node_name(folder), f"-o=jsonpath={conditions}"]
    kubeconfig = f"--kubeconfig={folder.kubeconfig('admin')}"
    command = [str(kubectl), kubeconfig, "--request-timeout=2s", *query]
    return succeeds(command, timeout_s=5) and run(command).strip() == "True"


def ctr_command(binaries: Path, folder: StateFolder) -> list[str | Path]:
    """`ctr` for the images of the kubelet; the socket works from outside the node."""
    address = folder.node / "containerd" / "containerd.sock"
    return [binaries / "ctr", "--address", address, "--namespace", "k8s.io"]


def write_template(source: Path, target: Path, values: Mapping[str, str]) -> None:
    """Fills the `${name}` places of a file; a missing value is an error."""
    target.write_text(Template(source.read_text()).substitute(values))


def _snapshotter(folder: Path) -> str:
    # The kernel stacks no overlay on an overlay, which is what a container's root is.
    return "native" if file_system_of(folder) == "overlay" else "overlayfs"


def _daemon_environment() -> dict[str, str]:
    # Debian keeps runc, nft and conntrack where an ordinary PATH does not look.
    return {"PATH": SYSTEM_PATH}
