"""The cluster of this machine: a control plane, a node if the user is root, and Postgres."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from queue_operator.devcluster import binaries, cgroups, controlplane, machine, node, processes
from queue_operator.devcluster.controlplane import ControlPlane
from queue_operator.devcluster.errors import DevClusterError, NotOurs
from queue_operator.devcluster.images import images_dir
from queue_operator.devcluster.kubeconfig import write_kubeconfigs
from queue_operator.devcluster.network import AddressPlan, choose_slot
from queue_operator.devcluster.paths import checkout_root
from queue_operator.devcluster.pause import pause_archive
from queue_operator.devcluster.pki import ensure_pki
from queue_operator.devcluster.postgres import Postgres
from queue_operator.devcluster.progress import Progress
from queue_operator.devcluster.provider import LOCAL
from queue_operator.devcluster.state import ClusterInfo, StateFolder, slots_locked
from queue_operator.devcluster.toolchain import (
    NODE_PACKAGES,
    ensure_debian_packages,
    ensure_kubectl,
)


class LocalCluster:
    """A cluster whose processes run on this machine, with or without a node.

    Args:
        provider: `local`, or `control-plane` for the API without a node.

    """

    def __init__(self, folder: StateFolder, provider: str) -> None:
        self._folder = folder
        self._provider = provider

    @property
    def has_node(self) -> bool:
        return self._provider == LOCAL

    def up(self, progress: Progress) -> ClusterInfo:
        """Builds and starts what is missing; returns at once if all is running."""
        info = self._folder.info()
        if info is not None and self.healthy(info):
            return info
        self._require_platform()
        programs, kubectl = self._prepare(progress)
        self._clear_interrupted_start()
        starting = self._folder.path / "starting"
        starting.touch()
        plan = self._claim_slot()
        info = self._start(plan, programs, kubectl, progress)
        self._folder.write_info(info)
        starting.unlink()
        return info

    def healthy(self, info: ClusterInfo) -> bool:
        """Whether every part runs and the API answers."""
        if not all(self.parts().values()) or (self._folder.path / "starting").exists():
            return False
        if not controlplane.api_ready(info.kubectl, info.kubeconfig):
            return False
        return not self.has_node or node.node_ready(info.kubectl, self._folder)

    def parts(self) -> Mapping[str, bool]:
        """Every process of the cluster and whether it runs."""
        plan = self._folder.plan()
        daemons = (node.INIT, *node.DAEMONS) if self.has_node else ()
        states = {
            name: processes.is_running(self._folder, name)
            for name in (*controlplane.DAEMONS, *daemons)
        }
        return {**states, "postgres": plan is not None and self._postgres(plan).running()}

    def down(self) -> None:
        """Ends every process and removes everything outside the state folder.

        Nothing is asked to end politely: what it could save is removed as well.
        """
        plan = self._folder.plan()
        if self.has_node:
            node.stop(self._folder, plan)
        processes.kill_marked(self._folder)
        if plan is not None:
            self._postgres(plan).kill()

    def load_image(self, archive: Path) -> None:
        if not self.has_node:
            raise DevClusterError("this cluster has no node: nothing can run an image")
        if not processes.is_running(self._folder, "containerd"):
            raise DevClusterError(f"the node does not run: {_up_hint(self._folder)}")
        ctr = node.ctr_command(binaries.binaries_dir(), self._folder)
        node.load_image(ctr, archive, self._folder.node / "images")

    def _require_platform(self) -> None:
        if sys.platform != "linux":
            raise DevClusterError(f"provider {self._provider} needs Linux: use provider kind")
        if self.has_node and (missing := machine.what_a_node_lacks()):
            raise DevClusterError(
                f"provider local needs {', '.join(missing)}: use sudo, in a container "
                "`--privileged`, or provider control-plane"
            )

    def _prepare(self, progress: Progress) -> tuple[Path, Path]:
        modules = checkout_root() / "tools" / "cluster"
        wanted = [*binaries.CONTROL_PLANE, *binaries.CLIENT]
        if self.has_node:
            ensure_debian_packages(NODE_PACKAGES, progress)
            wanted += binaries.NODE
        return binaries.ensure_programs(wanted, modules, progress), ensure_kubectl(progress)

    def _clear_interrupted_start(self) -> None:
        # A killed `up` may have started what it did not record; its data may stay.
        if (self._folder.path / "starting").exists():
            processes.kill_marked(self._folder)

    def _claim_slot(self) -> AddressPlan:
        if plan := self._folder.plan():
            return plan
        # Before anything is recorded, nothing of this cluster runs.
        if self.has_node and (groups := cgroups.occupied(self._folder.name)):
            raise NotOurs(
                f"{groups[0]} holds processes of another cluster {self._folder.name!r}, which has "
                "its state elsewhere: choose another --name"
            )
        with slots_locked() as taken:
            plan = choose_slot(taken, loopback=not self.has_node)
            self._folder.write_settings(self._provider, slot=plan.slot, loopback=plan.loopback)
        return plan

    def _start(
        self, plan: AddressPlan, programs: Path, kubectl: Path, progress: Progress
    ) -> ClusterInfo:
        self._folder.create()
        ensure_pki(self._folder.pki, plan, node.node_name(self._folder))
        write_kubeconfigs(self._folder, plan)
        if self.has_node:
            node.prepare_host(plan, self._folder)
        postgres = self._postgres(plan)
        with progress.step("starting PostgreSQL"):
            postgres.start()
        ControlPlane(self._folder, plan, programs).start(kubectl, progress)
        if self.has_node:
            configuration = checkout_root() / "tools" / "cluster" / "node"
            worker = node.Node(self._folder, plan, programs, configuration)
            worker.start(kubectl, pause_archive(programs / "pause", images_dir()), progress)
        return ClusterInfo(
            name=self._folder.name,
            provider=self._provider,
            kubeconfig=self._folder.kubeconfig("admin"),
            kubectl=kubectl,
            helm=programs / "helm",
            postgres_dsn=postgres.dsn,
            postgres_admin_dsn=postgres.admin_dsn,
            host_address=plan.host,
            node_address=plan.node,
            has_node=self.has_node,
        )

    def _postgres(self, plan: AddressPlan) -> Postgres:
        networks = [plan.host_cidr]
        if self.has_node:
            networks.append(plan.pod_cidr)
        return Postgres(self._folder.postgres, plan.host, networks=networks)


def _up_hint(folder: StateFolder) -> str:
    return f"start it with `queue-operator dev up --name {folder.name}`"
