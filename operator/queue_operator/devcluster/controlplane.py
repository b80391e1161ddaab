"""etcd, the API server, the controller manager and the scheduler, as processes of the host."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from queue_operator.devcluster import processes
from queue_operator.devcluster.commands import succeeds
from queue_operator.devcluster.errors import NotReady
from queue_operator.devcluster.network import (
    API_PORT,
    CONTROLLER_MANAGER_PORT,
    ETCD_PEER_PORT,
    ETCD_PORT,
    SCHEDULER_PORT,
    AddressPlan,
)
from queue_operator.devcluster.progress import Progress
from queue_operator.devcluster.state import StateFolder

ISSUER = "https://kubernetes.default.svc.cluster.local"
START_TIMEOUT_S = 180.0
DAEMONS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")


class ControlPlane:
    """Starts the four daemons; `processes.kill_marked` ends them."""

    def __init__(self, folder: StateFolder, plan: AddressPlan, binaries: Path) -> None:
        self._folder = folder
        self._plan = plan
        self._binaries = binaries

    def start(self, kubectl: Path, progress: Progress) -> None:
        """Starts what is not running and returns when the API server is ready."""
        lines = commands(self._folder, self._plan)
        with progress.step("starting etcd and the API server"):
            self._end_orphaned_apiserver()
            self._ensure("etcd", lines)
            self._ensure("kube-apiserver", lines)
            processes.wait_until(
                lambda: self.ready(kubectl),
                f"the API server; see {self._folder.logs}/kube-apiserver.log",
                START_TIMEOUT_S,
            )
        with progress.step("starting the controller manager and the scheduler"):
            self._ensure("kube-controller-manager", lines)
            self._ensure("kube-scheduler", lines)

    def ready(self, kubectl: Path) -> bool:
        for name in ("etcd", "kube-apiserver"):
            if not processes.is_running(self._folder, name):
                raise NotReady(f"{name} ended: see {self._folder.logs}/{name}.log")
        return api_ready(kubectl, self._folder.kubeconfig("admin"))

    def _end_orphaned_apiserver(self) -> None:
        # One that lost its etcd says that it is ready soon after, but hangs for minutes.
        apiserver = processes.recorded(self._folder, "kube-apiserver")
        if apiserver is not None and not processes.is_running(self._folder, "etcd"):
            apiserver.kill()

    def _ensure(self, name: str, lines: Mapping[str, list[str]]) -> None:
        if processes.is_running(self._folder, name):
            return
        command = [str(self._binaries / name), *lines[name]]
        processes.record(self._folder, name, processes.spawn(self._folder, name, command))


def api_ready(kubectl: Path, kubeconfig: Path) -> bool:
    # The request must not outlive its process: kubectl's own timeout does not cover dialling.
    arguments = (f"--kubeconfig={kubeconfig}", "get", "--raw=/readyz", "--request-timeout=2s")
    return succeeds([kubectl, *arguments], timeout_s=5)


def commands(folder: StateFolder, plan: AddressPlan) -> dict[str, list[str]]:
    """The arguments of each daemon."""
    return {
        "etcd": _etcd(folder, plan),
        "kube-apiserver": _apiserver(folder, plan),
        "kube-controller-manager": _controller_manager(folder, plan),
        "kube-scheduler": _scheduler(folder, plan),
    }


def _etcd(folder: StateFolder, plan: AddressPlan) -> list[str]:
    clients = f"https://{plan.host}:{ETCD_PORT}"
    peers = f"https://{plan.host}:{ETCD_PEER_PORT}"
    certificate, key = folder.pki / "etcd.crt", folder.pki / "etcd.key"
    return [
        f"--data-dir={folder.path / 'etcd'}",
        f"--name={folder.name}",
        f"--listen-client-urls={clients}",
        f"--advertise-client-urls={clients}",
        f"--listen-peer-urls={peers}",
        f"--initial-advertise-peer-urls={peers}",
        f"--initial-cluster={folder.name}={peers}",
        *(f"--{side}cert-file={certificate}" for side in ("", "peer-")),
        *(f"--{side}key-file={key}" for side in ("", "peer-")),
        *(f"--{side}trusted-ca-file={folder.pki / 'ca.crt'}" for side in ("", "peer-")),
        "--client-cert-auth",
        "--peer-client-cert-auth",
        # The cluster is thrown away; only a crash of the machine could lose a write.
        "--unsafe-no-fsync",
        "--log-level=warn",
    ]


def _apiserver(folder: StateFolder, plan: AddressPlan) -> list[str]:
    pki = folder.pki
    arguments = [
        f"--etcd-servers=https://{plan.host}:{ETCD_PORT}",
        f"--etcd-cafile={pki / 'ca.crt'}",
        f"--etcd-certfile={pki / 'etcd-client.crt'}",
        f"--etcd-keyfile={pki / 'etcd-client.key'}",
        f"--bind-address={plan.host}",
        f"--advertise-address={plan.host}",
        f"--secure-port={API_PORT}",
        f"--service-cluster-ip-range={plan.service_cidr}",
        f"--tls-cert-file={pki / 'apiserver.crt'}",
        f"--tls-private-key-file={pki / 'apiserver.key'}",
        f"--client-ca-file={pki / 'ca.crt'}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged=true",
        f"--service-account-issuer={ISSUER}",
        f"--service-account-key-file={pki / 'service-account.key'}",
        f"--service-account-signing-key-file={pki / 'service-account.key'}",
        f"--requestheader-client-ca-file={pki / 'front-proxy-ca.crt'}",
        "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={pki / 'front-proxy-client.crt'}",
        f"--proxy-client-key-file={pki / 'front-proxy-client.key'}",
        # By default it would look the node up by name, which no DNS of the host knows.
        "--kubelet-preferred-address-types=InternalIP",
        f"--kubelet-certificate-authority={pki / 'ca.crt'}",
        f"--kubelet-client-certificate={pki / 'kubelet-client.crt'}",
        f"--kubelet-client-key={pki / 'kubelet-client.key'}",
    ]
    if plan.loopback:
        # The endpoint of the Service `kubernetes` may not be a loopback address.
        arguments.append("--endpoint-reconciler-type=none")
    return arguments


def _controller_manager(folder: StateFolder, plan: AddressPlan) -> list[str]:
    pki = folder.pki
    return [
        *_component(folder, plan, "controller-manager", CONTROLLER_MANAGER_PORT),
        f"--service-account-private-key-file={pki / 'service-account.key'}",
        f"--root-ca-file={pki / 'ca.crt'}",
        f"--cluster-signing-cert-file={pki / 'ca.crt'}",
        f"--cluster-signing-key-file={pki / 'ca.key'}",
        "--use-service-account-credentials",
        # It makes this folder, by default below /usr/libexec.
        f"--flex-volume-plugin-dir={folder.path / 'volume-plugins'}",
    ]


def _scheduler(folder: StateFolder, plan: AddressPlan) -> list[str]:
    return _component(folder, plan, "scheduler", SCHEDULER_PORT)


def _component(folder: StateFolder, plan: AddressPlan, user: str, port: int) -> list[str]:
    kubeconfig = folder.kubeconfig(user)
    return [
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        f"--bind-address={plan.host}",
        f"--secure-port={port}",
        "--leader-elect=false",
        # Without a folder of its own it writes its serving certificate to the working directory.
        "--cert-dir=",
    ]
