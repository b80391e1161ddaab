"""A namespace under the restricted profile, and the programs that act in it."""

import json
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from queue_operator.devcluster import ClusterInfo

CHARTS = Path(__file__).resolve().parents[3] / "charts"


class Namespace:
    """kubectl and Helm against one namespace of a real cluster."""

    def __init__(self, cluster: ClusterInfo, name: str) -> None:
        self.cluster = cluster
        self.name = name

    def try_kubectl(self, *arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
        return self._run(self.cluster.kubectl, arguments, text)

    def kubectl(self, *arguments: str, text: str = "") -> str:
        return _succeeded(self.try_kubectl(*arguments, text=text))

    def helm(self, *arguments: str, values: dict[str, Any] | None = None) -> str:
        assert self.cluster.helm is not None, "the cluster has no helm: run `queue-operator dev up`"
        if values is not None:
            arguments = (*arguments, "--values=-")
        return _succeeded(self._run(self.cluster.helm, arguments, yaml.safe_dump(values or {})))

    def get(self, *arguments: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.kubectl("get", *arguments, "--output=json"))
        return found

    def _run(
        self, program: Path, arguments: tuple[str, ...], text: str
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [
                str(program),
                f"--kubeconfig={self.cluster.kubeconfig}",
                f"--namespace={self.name}",
                *arguments,
            ],
            input=text,
            capture_output=True,
            text=True,
            check=False,
        )


def _succeeded(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, f"{done.args}: {done.stderr}"
    return done.stdout


@pytest.fixture
def namespace(cluster: ClusterInfo) -> Iterator[Namespace]:
    """A new namespace that admits only restricted pods."""
    made = Namespace(cluster, f"charts-{uuid.uuid4().hex[:8]}")
    made.kubectl("create", "namespace", made.name)
    made.kubectl(
        "label",
        f"namespace/{made.name}",
        "pod-security.kubernetes.io/enforce=restricted",
        "pod-security.kubernetes.io/warn=restricted",
    )
    yield made
    made.kubectl("delete", "namespace", made.name, "--wait=false")
