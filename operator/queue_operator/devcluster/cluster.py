"""The facade: up, status, load_image and down, whatever provides the cluster."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from queue_operator.devcluster import machine
from queue_operator.devcluster.errors import DevClusterError
from queue_operator.devcluster.existing import ExistingCluster, ExistingOptions
from queue_operator.devcluster.kind import KindCluster, docker_answers
from queue_operator.devcluster.local import LocalCluster
from queue_operator.devcluster.paths import is_root
from queue_operator.devcluster.progress import Progress, SilentProgress
from queue_operator.devcluster.provider import (
    CONTROL_PLANE,
    EXISTING,
    KIND,
    LOCAL,
    PROVIDERS,
    Provider,
)
from queue_operator.devcluster.state import (
    ClusterInfo,
    StateFolder,
    all_folders,
    existing_folder,
    folder_of,
    forget_empty_root,
)

DEFAULT_NAME = "dev"


@dataclass(frozen=True)
class ClusterStatus:
    """What is there of a cluster, and what of it works.

    Attributes:
        parts: every process or service by name, and whether it runs.
        info: None until the cluster was fully up once.

    """

    name: str
    provider: str
    parts: Mapping[str, bool]
    info: ClusterInfo | None

    @property
    def ready(self) -> bool:
        return self.info is not None and all(self.parts.values())


def up(
    name: str = DEFAULT_NAME,
    provider: str | None = None,
    progress: Progress | None = None,
    existing: ExistingOptions | None = None,
) -> ClusterInfo:
    """Starts a cluster, or repairs one that is half there; quick if all of it runs.

    Args:
        name: a DNS label; clusters of different names run side by side.
        provider: one of `PROVIDERS`; by default that of the running cluster, else
            `default_provider()`.
        progress: told of each step; silent if omitted.
        existing: where the cluster and the database are, for provider existing.

    Raises:
        DevClusterError: the message says what failed and what to do.

    """
    folder = folder_of(name)
    with folder.locked():
        recorded = folder.settings().get("provider")
        chosen = provider or recorded or default_provider()
        if recorded is not None and chosen != recorded:
            raise DevClusterError(
                f"cluster {name!r} has provider {recorded}: choose another --name, or stop it "
                f"first with `queue-operator dev down --name {name}`"
            )
        try:
            return _provider(folder, chosen, existing).up(progress or SilentProgress())
        finally:
            # An attempt that failed before it began is no cluster.
            if not folder.settings():
                folder.remove()


def down(name: str = DEFAULT_NAME, progress: Progress | None = None) -> None:
    """Ends a cluster and removes its data; works on whatever a crash left of it.

    Raises:
        ClusterNotFound: there is no state folder of that name.
        NotOurs: the folder, or something that it would remove, was made by somebody else.

    """
    progress = progress or SilentProgress()
    folder = existing_folder(name)
    with folder.locked(), progress.step(f"removing cluster {name}"):
        # What is started is recorded before: without a record there is nothing but the folder.
        if folder.settings():
            _recorded_provider(folder).down()
        folder.remove()
    forget_empty_root()


def status(name: str = DEFAULT_NAME) -> ClusterStatus:
    """Looks at every part of a cluster.

    Raises:
        ClusterNotFound: there is no state folder of that name.

    """
    folder = existing_folder(name)
    parts = _recorded_provider(folder).parts()
    return ClusterStatus(name, _recorded_name(folder), parts, folder.info())


def statuses() -> list[ClusterStatus]:
    """The status of every cluster of this user."""
    return [status(folder.name) for folder in all_folders()]


def load_image(archive: Path, name: str = DEFAULT_NAME, progress: Progress | None = None) -> None:
    """Makes the images of a docker-archive available to the pods of a cluster.

    Raises:
        DevClusterError: the cluster cannot run images, or is not up.

    """
    progress = progress or SilentProgress()
    folder = existing_folder(name)
    if not archive.is_file():
        raise DevClusterError(
            f"there is no image archive {archive}: build it again; where another checkout builds "
            "into the same cache, one after the other"
        )
    with folder.locked(), progress.step(f"loading {archive.name}"):
        _recorded_provider(folder).load_image(archive)


def default_provider() -> str:
    """The fullest cluster that this user can have on this machine."""
    if sys.platform == "linux" and not machine.what_a_node_lacks():
        return LOCAL
    return KIND if docker_answers() else CONTROL_PLANE


def _recorded_name(folder: StateFolder) -> str:
    # Nothing is recorded if `up` was killed at once; then the fullest clean-up is the right one.
    fallback = LOCAL if is_root() else CONTROL_PLANE
    return str(folder.settings().get("provider", fallback))


def _recorded_provider(folder: StateFolder) -> Provider:
    return _provider(folder, _recorded_name(folder), None)


def _provider(folder: StateFolder, name: str, existing: ExistingOptions | None) -> Provider:
    if name in (LOCAL, CONTROL_PLANE):
        return LocalCluster(folder, name)
    if name == KIND:
        return KindCluster(folder)
    if name == EXISTING:
        return ExistingCluster(folder, existing)
    raise DevClusterError(f"provider: {name!r} is not one of {', '.join(PROVIDERS)}")
