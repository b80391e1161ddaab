"""Cluster, images, Helm releases."""

import json
import secrets
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from demo.kube import Kube, execute, helm
from demo.narrator import DemoFailed, say
from queue_operator.devcluster import (
    ClusterInfo,
    build_image,
    default_provider,
    load_image,
    progress_for,
    up,
)
from queue_operator.devcluster.provider import CONTROL_PLANE

ROOT = Path(__file__).resolve().parents[2]
HELLO = ROOT / "examples" / "01-hello"
OPERATOR_IMAGE = "queue-operator:dev"
WORKER_IMAGE = "queue-operator-hello:dev"
SYSTEM = "queue-system"
NAMESPACE = "demo"
POOLS = {"a": 2, "b": 1}


def require_pods() -> None:
    """Ends the demo at once where nothing could run a pod."""
    if default_provider() == CONTROL_PLANE:
        raise DemoFailed("the demo runs pods, and this user can have no node here: run it as root")


def start_cluster(name: str) -> ClusterInfo:
    cluster = up(name, progress=progress_for(sys.stderr))
    say(f"kubeconfig: {cluster.kubeconfig}")
    return cluster


def load_images(cluster: ClusterInfo) -> None:
    progress = progress_for(sys.stderr)
    archives = [
        build_image(OPERATOR_IMAGE, progress=progress),
        build_image(WORKER_IMAGE, context=HELLO, progress=progress),
    ]
    for archive in archives:
        load_image(archive, cluster.name, progress=progress)


def install_operator(cluster: ClusterInfo) -> None:
    """The operator in a namespace of its own, with the restricted security profile."""
    system = Kube(cluster, SYSTEM)
    make_namespace(system)
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "queue-operator-database"},
        "stringData": {"dsn": cluster.postgres_dsn},
    }
    execute(system.command("apply", "--filename=-"), text_in=json.dumps(secret))
    release(
        cluster,
        SYSTEM,
        "queue-operator",
        "charts/queue-operator",
        {
            "image.repository": OPERATOR_IMAGE.partition(":")[0],
            "image.tag": OPERATOR_IMAGE.partition(":")[2],
            "database.existingSecret": "queue-operator-database",
        },
    )


def install_workers(cluster: ClusterInfo) -> None:
    """One Deployment of workers per pool; a worker's tags are demands on the job."""
    make_namespace(Kube(cluster, NAMESPACE))
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda item: install_pool(cluster, *item), POOLS.items()))


def install_pool(cluster: ClusterInfo, pool: str, replicas: int) -> None:
    release(
        cluster,
        NAMESPACE,
        f"workers-{pool}",
        "charts/queue-worker",
        {
            "image.repository": WORKER_IMAGE.partition(":")[0],
            "image.tag": WORKER_IMAGE.partition(":")[2],
            "server": f"queue-operator.{SYSTEM}.svc:50051",
            "tags[0]": f"pool={pool}",
            "replicas": str(replicas),
            "capacity": "50",
        },
    )


def release(
    cluster: ClusterInfo, namespace: str, name: str, chart: str, values: dict[str, str]
) -> None:
    # A nonce makes the pods new, so that they run the image that was just loaded.
    values = {**values, "podAnnotations.demo-run": secrets.token_hex(4)}
    helm(
        cluster,
        "upgrade",
        "--install",
        name,
        str(ROOT / chart),
        f"--namespace={namespace}",
        "--wait",
        "--timeout=2m",
        # The definitions may have been applied by kubectl before, as the guides say.
        "--take-ownership",
        "--force-conflicts",
        *(f"--set-string={key}={value}" for key, value in values.items() if key not in NUMBERS),
        *(f"--set={key}={value}" for key, value in values.items() if key in NUMBERS),
    )


NUMBERS = {"replicas", "capacity"}


def make_namespace(kube: Kube) -> None:
    namespace = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": kube.namespace,
            "labels": {"pod-security.kubernetes.io/enforce": "restricted"},
        },
    }
    execute(kube.command("apply", "--filename=-"), text_in=json.dumps(namespace))
