"""One real cluster for this folder; its name keeps it apart from a developer's own."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from queue_operator.devcluster import ClusterInfo, down, load_image, up
from queue_operator.devcluster.baseimage import TAG
from queue_operator.devcluster.commands import run
from queue_operator.devcluster.images import base_image_archive

CLUSTER = "test-dev"
NAMESPACE = "restricted"
POD = "probe"

Kubectl = Callable[..., str]


@pytest.fixture(scope="session")
def cluster() -> Iterator[ClusterInfo]:
    info = up(CLUSTER, "local")
    try:
        load_image(base_image_archive(), CLUSTER)
        yield info
    finally:
        down(CLUSTER)


@pytest.fixture(scope="session")
def kubectl(cluster: ClusterInfo) -> Kubectl:
    return kubectl_of(cluster)


@pytest.fixture(scope="session")
def apply(kubectl: Kubectl, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., None]:
    def apply_manifest(*objects: dict[str, Any]) -> None:
        path = tmp_path_factory.mktemp("manifests") / "list.json"
        path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
        kubectl("apply", "-f", str(path))

    return apply_manifest


@pytest.fixture(scope="session")
def pod(kubectl: Kubectl, apply: Callable[..., None]) -> str:
    """A pod that Pod Security's strictest level admits, with a token for the operator."""
    apply(namespace())
    # The API server refuses pods until the namespace has its default service account.
    kubectl("-n", NAMESPACE, "wait", "--for=create", "serviceaccount/default", "--timeout=60s")
    apply(probe_pod())
    kubectl("-n", NAMESPACE, "wait", "--for=condition=Ready", f"pod/{POD}", "--timeout=60s")
    return POD


def kubectl_of(cluster: ClusterInfo) -> Kubectl:
    def call(*arguments: str) -> str:
        return run([cluster.kubectl, f"--kubeconfig={cluster.kubeconfig}", *arguments])

    return call


def namespace() -> dict[str, Any]:
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": NAMESPACE, "labels": labels},
    }


def probe_pod() -> dict[str, Any]:
    program = "import signal; print('probe started', flush=True); signal.sigwait([signal.SIGTERM])"
    token = {"serviceAccountToken": {"path": "token", "audience": "queue-operator"}}
    container = {
        "name": "main",
        "image": TAG,
        "imagePullPolicy": "Never",
        "command": ["python3", "-c", program],
        "resources": {"limits": {"memory": "64Mi", "cpu": "200m"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"name": "token", "mountPath": "/var/run/queue-operator"}],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": POD, "namespace": NAMESPACE},
        "spec": {
            "containers": [container],
            "terminationGracePeriodSeconds": 1,
            "volumes": [{"name": "token", "projected": {"sources": [token]}}],
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": 65532,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
        },
    }
