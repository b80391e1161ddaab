"""What a local cluster can do, seen from pods and from the host."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from tests.programs import line, started

from queue_operator.devcluster import (
    ClusterInfo,
    DevClusterError,
    ExistingOptions,
    down,
    load_image,
    status,
    up,
)
from queue_operator.devcluster.commands import run
from queue_operator.devcluster.images import base_image_archive
from queue_operator.devcluster.processes import recorded
from queue_operator.devcluster.state import existing_folder

Kubectl = Callable[..., str]
NAMESPACE = "restricted"


@pytest.fixture
def execute(kubectl: Kubectl, pod: str) -> Callable[[str], str]:
    """Runs Python in the pod and returns what it printed."""

    def in_pod(program: str) -> str:
        return kubectl("-n", NAMESPACE, "exec", pod, "--", "python3", "-c", program).strip()

    return in_pod


def test_node_is_ready_and_has_the_pinned_version(kubectl: Kubectl, cluster: ClusterInfo) -> None:
    node = json.loads(kubectl("get", "node", f"{cluster.name}-node", "-o=json"))
    conditions = {item["type"]: item["status"] for item in node["status"]["conditions"]}
    assert conditions["Ready"] == "True"
    assert node["status"]["nodeInfo"]["kubeletVersion"] == "v1.37.2"
    assert {"type": "InternalIP", "address": cluster.node_address} in node["status"]["addresses"]


async def test_restricted_pod_runs_and_logs(cluster: ClusterInfo, pod: str) -> None:
    # A pod is ready once its process runs, which may be before that has said anything.
    command: list[str | Path] = [
        cluster.kubectl,
        f"--kubeconfig={cluster.kubeconfig}",
        "-n",
        NAMESPACE,
        "logs",
    ]
    async with asyncio.timeout(60), started(*command, "--follow", pod) as logs:
        assert await line(logs) == "probe started"


def test_pod_is_confined(execute: Callable[[str], str]) -> None:
    status_lines = execute("print(open('/proc/self/status').read())").splitlines()
    fields = dict(line.split(":\t", 1) for line in status_lines if ":\t" in line)
    assert fields["Uid"].split()[0] == "65532"
    assert fields["Seccomp"] == "2"
    assert int(fields["CapEff"], 16) == 0


def test_pod_reaches_postgres(execute: Callable[[str], str], cluster: ClusterInfo) -> None:
    # An SSLRequest: the server answers one byte, N, since it has no certificate.
    answer = execute(
        "import socket, struct;"
        f"s = socket.create_connection(('{cluster.host_address}', 5432), 5);"
        "s.sendall(struct.pack('!ii', 8, 80877103)); print(s.recv(1).decode())"
    )
    assert answer == "N"


def test_pod_resolves_and_reaches_a_service(
    execute: Callable[[str], str], kubectl: Kubectl
) -> None:
    address = execute(
        "import socket; name = 'kubernetes.default.svc.cluster.local';"
        "print(socket.create_connection((name, 443), 5).getpeername()[0])"
    )
    assert address == kubectl("get", "service", "kubernetes", "-o=jsonpath={.spec.clusterIP}")


def test_token_review_names_the_pod(
    execute: Callable[[str], str], kubectl: Kubectl, pod: str, tmp_path: Path
) -> None:
    token = execute("print(open('/var/run/queue-operator/token').read())")
    review = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenReview",
        "spec": {"token": token, "audiences": ["queue-operator"]},
    }
    path = tmp_path / "review.json"
    path.write_text(json.dumps(review))
    answer = json.loads(kubectl("create", "-f", str(path), "-o=json"))["status"]
    assert answer["authenticated"] is True
    assert answer["audiences"] == ["queue-operator"]
    assert answer["user"]["extra"]["authentication.kubernetes.io/pod-name"] == [pod]
    assert answer["user"]["extra"]["authentication.kubernetes.io/pod-uid"] == [
        kubectl("-n", NAMESPACE, "get", "pod", pod, "-o=jsonpath={.metadata.uid}")
    ]


def test_kubelet_refuses_strangers(execute: Callable[[str], str], cluster: ClusterInfo) -> None:
    answer = execute(
        "import ssl, urllib.request, urllib.error\n"
        "context = ssl._create_unverified_context()\n"
        f"url = 'https://{cluster.node_address}:10250/pods'\n"
        "try: print(urllib.request.urlopen(url, context=context, timeout=5).status)\n"
        "except urllib.error.HTTPError as error: print(error.code)"
    )
    assert answer == "401"


def test_owner_of_the_database_is_no_superuser(cluster: ClusterInfo) -> None:
    query = "SELECT rolsuper OR rolcreaterole OR rolcreatedb FROM pg_roles WHERE rolname = user"
    with psycopg.connect(cluster.postgres_dsn) as connection:
        assert connection.execute(query).fetchone() == (False,)
        connection.execute("CREATE SCHEMA trial")
        connection.rollback()
    with psycopg.connect(cluster.postgres_admin_dsn) as connection:
        assert connection.execute("SHOW is_superuser").fetchone() == ("on",)
        assert connection.execute("SHOW fsync").fetchone() == ("on",)


def test_postgres_refuses_a_wrong_password(cluster: ClusterInfo) -> None:
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(cluster.postgres_dsn, password="wrong")


def test_second_up_changes_nothing_and_is_quick(cluster: ClusterInfo) -> None:
    folder = existing_folder(cluster.name)
    before = {part: recorded(folder, part) for part in status(cluster.name).parts}
    started = time.monotonic()
    assert up(cluster.name) == cluster
    assert time.monotonic() - started < 2
    assert {part: recorded(folder, part) for part in before} == before


def test_image_is_imported_once(cluster: ClusterInfo) -> None:
    marks = existing_folder(cluster.name).node / "images"
    before = sorted(marks.iterdir())
    load_image(base_image_archive(), cluster.name)
    assert sorted(marks.iterdir()) == before


@pytest.mark.parametrize("part", ["etcd", "kube-apiserver", "kubelet", "containerd"])
def test_up_repairs_a_killed_part(
    part: str, cluster: ClusterInfo, kubectl: Kubectl, pod: str
) -> None:
    killed = recorded(existing_folder(cluster.name), part)
    assert killed is not None
    killed.kill()
    assert status(cluster.name).parts[part] is False
    up(cluster.name)
    assert status(cluster.name).ready
    restarts = "-o=jsonpath={.status.phase} {.status.containerStatuses[0].restartCount}"
    assert kubectl("-n", NAMESPACE, "get", "pod", pod, restarts) == "Running 0"


def test_an_existing_cluster_is_borrowed(cluster: ClusterInfo) -> None:
    options = ExistingOptions(cluster.kubeconfig, None, cluster.postgres_dsn)
    info = up("test-existing", "existing", existing=options)
    try:
        assert (info.provider, info.has_node) == ("existing", True)
        assert info.host_address == cluster.host_address
        assert (
            run([info.kubectl, f"--kubeconfig={info.kubeconfig}", "get", "--raw=/readyz"]) == "ok"
        )
        assert status("test-existing").ready
        with pytest.raises(DevClusterError, match="push the image to a registry"):
            load_image(base_image_archive(), "test-existing")
    finally:
        down("test-existing")
    assert status(cluster.name).ready


def test_up_repairs_a_node_that_died_as_a_whole(
    cluster: ClusterInfo, kubectl: Kubectl, pod: str
) -> None:
    first = recorded(existing_folder(cluster.name), "node-init")
    assert first is not None
    first.kill()
    assert not status(cluster.name).parts["containerd"]
    up(cluster.name)
    assert status(cluster.name).ready
    restarted = "--for=jsonpath={.status.containerStatuses[0].restartCount}=1"
    kubectl("-n", NAMESPACE, "wait", restarted, f"pod/{pod}", "--timeout=60s")
    kubectl("-n", NAMESPACE, "wait", "--for=condition=Ready", f"pod/{pod}", "--timeout=60s")
