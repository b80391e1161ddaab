"""A cluster that the user already has, with a Postgres that it can reach."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
from psycopg.conninfo import conninfo_to_dict

from queue_operator.devcluster import controlplane
from queue_operator.devcluster.commands import run
from queue_operator.devcluster.errors import DevClusterError
from queue_operator.devcluster.progress import Progress
from queue_operator.devcluster.provider import EXISTING
from queue_operator.devcluster.state import ClusterInfo, StateFolder
from queue_operator.devcluster.toolchain import ensure_kubectl, find_program
from queue_operator.domain.addresses import NO_ADDRESS, check_postgres_address
from queue_operator.domain.errors import InvalidArgument

_CONNECT_TIMEOUT_S = 5


@dataclass(frozen=True)
class ExistingOptions:
    """Where the user's cluster and database are.

    Attributes:
        kubeconfig: the file, or None for $KUBECONFIG and ~/.kube/config.
        context: None for the file's current context.
        postgres_dsn: reachable from this machine and from pods.

    """

    kubeconfig: Path | None = None
    context: str | None = None
    postgres_dsn: str | None = field(default=None, repr=False)


class ExistingCluster:
    """Borrows a cluster: keeps a kubeconfig and a DSN, starts and stops nothing."""

    def __init__(self, folder: StateFolder, options: ExistingOptions | None = None) -> None:
        self._folder = folder
        self._options = options or ExistingOptions()

    def up(self, progress: Progress) -> ClusterInfo:
        """Raises:
        DevClusterError: no DSN is known, or the cluster or the database does not answer.
        """
        dsn = self._options.postgres_dsn or self._recorded_dsn()
        self._folder.create()
        kubectl = ensure_kubectl(progress)
        kubeconfig = self._folder.kubeconfig("admin")
        if self._given_cluster() or not kubeconfig.exists():
            _write_private(kubeconfig, run(view_command(kubectl, self._options)))
        with progress.step("asking the cluster and the database"):
            if not controlplane.api_ready(kubectl, kubeconfig):
                raise DevClusterError("the cluster does not answer: check --kubeconfig, --context")
            require_database(dsn)
            nodes = run([kubectl, "--kubeconfig", kubeconfig, "get", "nodes", "-o=name"])
        info = ClusterInfo(
            name=self._folder.name,
            provider=EXISTING,
            kubeconfig=kubeconfig,
            kubectl=kubectl,
            helm=find_program("helm"),
            postgres_dsn=dsn,
            postgres_admin_dsn=dsn,
            host_address=database_host(dsn),
            node_address=None,
            has_node=bool(nodes.split()),
        )
        # Only now: what does not answer would be a cluster that later calls find recorded.
        self._folder.write_settings(EXISTING)
        self._folder.write_info(info)
        return info

    def parts(self) -> Mapping[str, bool]:
        info = self._folder.info()
        if info is None:
            return {"cluster": False, "postgres": False}
        api = controlplane.api_ready(info.kubectl, info.kubeconfig)
        return {"cluster": api, "postgres": database_answers(info.postgres_dsn)}

    def load_image(self, archive: Path) -> None:
        raise DevClusterError(
            f"{archive.name} cannot be loaded into an existing cluster: push the image to a "
            "registry that its nodes can pull from"
        )

    def down(self) -> None:
        """Nothing of the user's is stopped."""

    def _given_cluster(self) -> bool:
        return self._options.kubeconfig is not None or self._options.context is not None

    def _recorded_dsn(self) -> str:
        info = self._folder.info()
        if info is None:
            raise DevClusterError("--postgres-dsn is required with provider existing")
        return info.postgres_dsn


def view_command(kubectl: Path, options: ExistingOptions) -> list[str | Path]:
    """Prints one context with everything that it refers to."""
    command: list[str | Path] = [kubectl, "config", "view", "--minify", "--flatten", "--raw"]
    if options.kubeconfig is not None:
        command += ["--kubeconfig", options.kubeconfig]
    if options.context is not None:
        command += ["--context", options.context]
    return command


def require_database(dsn: str) -> None:
    """Raises:
    DevClusterError: the database refuses or does not answer.
    """
    try:
        check_postgres_address("--postgres-dsn", dsn)
        conninfo_to_dict(dsn)
    except InvalidArgument as error:
        raise DevClusterError(str(error)) from None
    except psycopg.ProgrammingError:
        # What the driver says has the part that it did not understand.
        raise DevClusterError(f"--postgres-dsn: {NO_ADDRESS}") from None
    try:
        psycopg.connect(dsn, connect_timeout=_CONNECT_TIMEOUT_S).close()
    except psycopg.Error as error:
        raise DevClusterError(f"--postgres-dsn: the database does not answer: {error}") from error


def database_answers(dsn: str) -> bool:
    try:
        require_database(dsn)
    except DevClusterError:
        return False
    return True


def database_host(dsn: str) -> str:
    return str(conninfo_to_dict(dsn).get("host") or "localhost")


def _write_private(path: Path, content: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(content)
