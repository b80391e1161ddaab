"""What every kind of development cluster can do."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from queue_operator.devcluster.progress import Progress
from queue_operator.devcluster.state import ClusterInfo

LOCAL = "local"
KIND = "kind"
EXISTING = "existing"
CONTROL_PLANE = "control-plane"
PROVIDERS = (LOCAL, KIND, EXISTING, CONTROL_PLANE)


class Provider(Protocol):
    """One cluster, from its state folder."""

    def up(self, progress: Progress) -> ClusterInfo:
        """Starts what is not running; returns at once if all is."""

    def parts(self) -> Mapping[str, bool]:
        """Every part by name, and whether it works."""

    def load_image(self, archive: Path) -> None:
        """Makes a docker-archive available to pods under its tags."""

    def down(self) -> None:
        """Ends everything and removes everything but the state folder."""
