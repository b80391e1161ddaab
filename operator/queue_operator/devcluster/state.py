"""The state folder of a cluster: everything that is needed to stop it lives there."""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from queue_operator.devcluster.errors import ClusterNotFound, DevClusterError, NotOurs
from queue_operator.devcluster.locks import locked_folder
from queue_operator.devcluster.network import AddressPlan
from queue_operator.devcluster.paths import STATE_ROOT_VARIABLE, state_root

MARK = ".made-by-queue-operator-dev"
"""A file in each folder that was made here. Others are neither used nor removed."""
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,28}[a-z0-9])?")


@dataclass(frozen=True)
class ClusterInfo:
    """All that a user of a cluster needs to know; the demo and the tests read nothing else.

    Attributes:
        provider: local, kind, existing or control-plane.
        kubeconfig: credentials of a cluster administrator.
        helm: None where Helm is not available.
        postgres_dsn: the owner of database `queue_operator`, no superuser.
        postgres_admin_dsn: a superuser, or the owner again where none was given.
        host_address: where pods reach servers of this machine.
        node_address: the node's address; None without a node of ours.
        has_node: whether pods can run.

    """

    name: str
    provider: str
    kubeconfig: Path
    kubectl: Path
    helm: Path | None
    postgres_dsn: str = field(repr=False)
    postgres_admin_dsn: str = field(repr=False)
    host_address: str
    node_address: str | None
    has_node: bool

    def to_json(self) -> dict[str, Any]:
        return {
            key: str(value) if isinstance(value, Path) else value
            for key, value in asdict(self).items()
        }

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> ClusterInfo:
        paths = {
            key: Path(fields[key]) if fields[key] else None
            for key in ("kubeconfig", "kubectl", "helm")
        }
        return cls(**{**fields, **paths})


@dataclass(frozen=True)
class StateFolder:
    """Paths and small JSON files of one cluster."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def pki(self) -> Path:
        return self.path / "pki"

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @property
    def node(self) -> Path:
        return self.path / "node"

    @property
    def postgres(self) -> Path:
        return self.path / "postgres"

    @property
    def processes(self) -> Path:
        return self.path / "processes"

    def kubeconfig(self, user: str) -> Path:
        return self.path / "kubeconfig" / f"{user}.yaml"

    def exists(self) -> bool:
        return self.path.is_dir()

    def is_ours(self) -> bool:
        """Whether it was made here; earlier releases left their settings only."""
        if (self.path / MARK).is_file():
            return True
        try:
            return "provider" in self.settings()
        except (OSError, ValueError, TypeError):
            # What has that name there is no file of ours.
            return False

    def require_ours(self) -> None:
        """Raises:
        NotOurs: the folder was made by somebody else.
        """
        if not self.is_ours():
            raise NotOurs(
                f"{self.path} was not made by `queue-operator dev`, and is left alone: choose "
                f"another --name, or another folder for all clusters in {STATE_ROOT_VARIABLE}"
            )

    def create(self) -> None:
        _claim(self.path)
        for folder in (self.pki, self.logs, self.node, self.postgres, self.processes):
            folder.mkdir(parents=True, exist_ok=True)
        self.kubeconfig("admin").parent.mkdir(exist_ok=True, mode=0o700)
        self.pki.chmod(0o700)

    def remove(self) -> None:
        self.require_ours()
        shutil.rmtree(self.path, ignore_errors=False)

    def write_settings(self, provider: str, **settings: Any) -> None:
        """Records what the cluster is made of, before anything is started."""
        write_json(self.path / "cluster.json", {"provider": provider, **settings})

    def settings(self) -> dict[str, Any]:
        """What `write_settings` recorded; empty if `up` was killed before it did."""
        return read_json(self.path / "cluster.json") or {}

    def plan(self) -> AddressPlan | None:
        settings = self.settings()
        if "slot" not in settings:
            return None
        return AddressPlan(settings["slot"], settings["loopback"])

    def write_info(self, info: ClusterInfo) -> None:
        write_json(self.path / "info.json", info.to_json())

    def info(self) -> ClusterInfo | None:
        """The finished cluster's description; None while it was never fully up."""
        fields = read_json(self.path / "info.json")
        return None if fields is None else ClusterInfo.from_json(fields)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Serialises `up` and `down` of one cluster; the lock goes with the process."""
        with locked_folder(self.path, _claim):
            yield


def _claim(path: Path) -> None:
    """Makes the folder with its mark, at once, or finds that it was made so before.

    Raises:
        NotOurs: the folder was made by somebody else.

    """
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
        made.chmod(0o755)
        (made / MARK).touch()
        try:
            made.rename(path)
        except OSError:
            # Somebody was faster.
            shutil.rmtree(made)
    StateFolder(path).require_ours()


def folder_of(name: str) -> StateFolder:
    """The state folder of a cluster name, which need not exist.

    Raises:
        DevClusterError: the name is not a DNS label of at most 30 characters.

    """
    if not _NAME.fullmatch(name):
        raise DevClusterError(
            f"name: {name!r} is not a cluster name: use at most 30 lower-case letters, "
            "digits and dashes"
        )
    return StateFolder(state_root() / name)


def existing_folder(name: str) -> StateFolder:
    """The state folder of a cluster that was started.

    Raises:
        ClusterNotFound: there is none.
        NotOurs: there is a folder of that name, which was made by somebody else.

    """
    folder = folder_of(name)
    if not folder.exists():
        raise ClusterNotFound(name)
    folder.require_ours()
    return folder


def forget_empty_root() -> None:
    """Removes the folder of all clusters once the last is gone; one that the user named stays."""
    if not os.environ.get(STATE_ROOT_VARIABLE):
        with suppress(OSError):
            state_root().rmdir()


def all_folders() -> list[StateFolder]:
    root = state_root()
    if not root.is_dir():
        return []
    named = (StateFolder(path) for path in sorted(root.iterdir()) if _NAME.fullmatch(path.name))
    return [folder for folder in named if folder.exists() and folder.is_ours()]


@contextmanager
def slots_locked() -> Iterator[set[int]]:
    """The slots of all clusters, while nobody else may take one."""
    root = state_root()
    root.mkdir(parents=True, exist_ok=True)
    with locked_folder(root):
        plans = (folder.plan() for folder in all_folders())
        yield {plan.slot for plan in plans if plan is not None}


def read_json(path: Path) -> dict[str, Any] | None:
    try:
        content: dict[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    return content


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Replaces a file at once, so that a kill leaves the old or the new one."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        json.dump(content, file, indent=2)
    temporary.replace(path)
