"""A cluster by kind, for machines with a Docker daemon; Postgres runs on the host.

Postgres binds to the gateway of Docker's network `kind`: containers reach it
there, and the rest of the world does not.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from pathlib import Path

import yaml

from queue_operator.devcluster import binaries, controlplane
from queue_operator.devcluster.commands import run, succeeds
from queue_operator.devcluster.errors import DevClusterError, NotOurs, ToolMissing
from queue_operator.devcluster.network import SLOTS, choose_port
from queue_operator.devcluster.paths import checkout_root
from queue_operator.devcluster.postgres import Postgres
from queue_operator.devcluster.progress import Progress
from queue_operator.devcluster.provider import KIND
from queue_operator.devcluster.state import ClusterInfo, StateFolder, slots_locked
from queue_operator.devcluster.toolchain import ensure_kubectl, find_program

NETWORK = "kind"
FIRST_POSTGRES_PORT = 55432
READY_TIMEOUT_S = 180


class KindCluster:
    """One kind cluster and one embedded Postgres."""

    def __init__(self, folder: StateFolder) -> None:
        self._folder = folder

    def up(self, progress: Progress) -> ClusterInfo:
        require_docker()
        self._folder.create()
        kubectl, kind = ensure_kubectl(progress), _kind(progress)
        name = self._claim_name(kind)
        if name not in _clusters(kind):
            configuration = self._folder.path / "kind.yaml"
            configuration.write_text(yaml.safe_dump(cluster_configuration()))
            with progress.step(f"creating the kind cluster {name}"):
                run(create_command(kind, name, self._folder, configuration))
        # Written again, in case that a killed run made the cluster and no more.
        run([kind, "export", "kubeconfig", *_identity(name, self._folder)])
        postgres = self._postgres()
        with progress.step("starting PostgreSQL"):
            postgres.start()
        programs = binaries.ensure_programs(binaries.CLIENT, _modules(), progress)
        info = ClusterInfo(
            name=self._folder.name,
            provider=KIND,
            kubeconfig=self._folder.kubeconfig("admin"),
            kubectl=kubectl,
            helm=programs / "helm",
            postgres_dsn=postgres.dsn,
            postgres_admin_dsn=postgres.admin_dsn,
            host_address=postgres.host,
            node_address=node_address(name),
            has_node=True,
        )
        self._folder.write_info(info)
        return info

    def parts(self) -> Mapping[str, bool]:
        info = self._folder.info()
        if info is None:
            return {"kind": False, "postgres": False}
        api = controlplane.api_ready(info.kubectl, info.kubeconfig)
        return {"kind": api, "postgres": self._postgres().running()}

    def load_image(self, archive: Path) -> None:
        run(load_command(_installed_kind(), kind_name(self._folder), archive))

    def down(self) -> None:
        # A first `up` that could not get kind has made nothing with it.
        if (kind := _installed_kind()).exists():
            run(delete_command(kind, self._claim_name(kind), self._folder))
        if "address" in self._folder.settings():
            self._postgres().kill()

    def _claim_name(self, kind: Path) -> str:
        """What the cluster is called in kind: nobody else's has that name, and it is recorded
        before the cluster is made.

        Raises:
            NotOurs: an earlier release recorded no name, and kind has a cluster of this one's.

        """
        settings = self._folder.settings()
        if "cluster" in settings:
            return str(settings["cluster"])
        plain = self._folder.name
        if settings and plain in _clusters(kind):
            raise _unnamed(plain)
        self._record(cluster=f"{plain}-{secrets.token_hex(3)}")
        return kind_name(self._folder)

    def _record(self, **more: str | int) -> None:
        known = {
            name: value for name, value in self._folder.settings().items() if name != "provider"
        }
        self._folder.write_settings(KIND, **known, **more)

    def _postgres(self) -> Postgres:
        settings = self._folder.settings()
        if "address" not in settings:
            address, network = docker_network(run(network_command()))
            with slots_locked():
                port = choose_port(address, FIRST_POSTGRES_PORT, SLOTS)
                self._record(address=address, network=network, port=port)
                settings = self._folder.settings()
        networks = [settings["network"], f"{settings['address']}/32"]
        return Postgres(self._folder.postgres, settings["address"], settings["port"], networks)


def require_docker() -> None:
    """Raises:
    ToolMissing: no Docker daemon answers.
    """
    if not docker_answers():
        raise ToolMissing("docker", "provider kind needs a running Docker daemon")


def docker_answers() -> bool:
    return succeeds(["docker", "info"], timeout_s=10)


def cluster_configuration() -> dict[str, object]:
    """One node, which is enough for every example and test."""
    return {
        "kind": "Cluster",
        "apiVersion": "kind.x-k8s.io/v1alpha4",
        "nodes": [{"role": "control-plane"}],
    }


def kind_name(folder: StateFolder) -> str:
    """What kind calls the cluster of a folder.

    Raises:
        NotOurs: an earlier release recorded no name.

    """
    settings = folder.settings()
    if "cluster" not in settings:
        raise _unnamed(folder.name)
    return str(settings["cluster"])


def _unnamed(name: str) -> NotOurs:
    return NotOurs(
        f"nothing says that the kind cluster {name!r} was made by `queue-operator dev`, and it is "
        f"left alone: if it was, run `kind delete cluster --name {name}`, and this again"
    )


def create_command(
    kind: Path, name: str, folder: StateFolder, configuration: Path
) -> list[str | Path]:
    options = (f"--config={configuration}", f"--wait={READY_TIMEOUT_S}s")
    return [kind, "create", "cluster", *_identity(name, folder), *options]


def load_command(kind: Path, name: str, archive: Path) -> list[str | Path]:
    return [kind, "load", "image-archive", archive, "--name", name]


def delete_command(kind: Path, name: str, folder: StateFolder) -> list[str | Path]:
    return [kind, "delete", "cluster", *_identity(name, folder)]


def network_command() -> list[str | Path]:
    return ["docker", "network", "inspect", NETWORK]


def docker_network(inspection: str) -> tuple[str, str]:
    """The IPv4 gateway and range of a network, from `docker network inspect`.

    Raises:
        DevClusterError: the network has no IPv4 range.

    """
    for entry in json.loads(inspection)[0]["IPAM"]["Config"]:
        if "." in entry["Subnet"] and "Gateway" in entry:
            return entry["Gateway"], entry["Subnet"]
    raise DevClusterError(
        f"Docker's network {NETWORK!r} has no IPv4 range, which Postgres needs: remove it with "
        f"`docker network rm {NETWORK}` and run `dev up` again"
    )


def node_address(name: str) -> str:
    """The address of the node's container."""
    template = "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}"
    return run(["docker", "inspect", "--format", template, f"{name}-control-plane"]).strip()


def _identity(name: str, folder: StateFolder) -> tuple[str, str]:
    return f"--name={name}", f"--kubeconfig={folder.kubeconfig('admin')}"


def _clusters(kind: Path) -> list[str]:
    return run([kind, "get", "clusters"]).split()


def _kind(progress: Progress) -> Path:
    if present := find_program("kind"):
        return present
    return binaries.ensure_programs((binaries.KIND,), _modules(), progress) / "kind"


def _installed_kind() -> Path:
    return find_program("kind") or binaries.binaries_dir() / "kind"


def _modules() -> Path:
    return checkout_root() / "tools" / "cluster"
