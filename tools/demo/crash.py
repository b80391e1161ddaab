"""Kills a worker's container the hard way."""

import json

from demo.kube import Kube, execute
from demo.narrator import DemoFailed
from queue_operator.devcluster import ClusterInfo, container_runtime


def kill_container(cluster: ClusterInfo, namespace: str, pod: str) -> bool:
    """SIGKILL for the first container of a pod, sent by the container runtime of its node.

    True when the kubelet then reports that this very container ended with exit code 137.
    """
    kube = Kube(cluster, namespace)
    container = _container_id(kube, pod)
    ctr = container_runtime(cluster)
    execute([*ctr, "tasks", "kill", "--signal", "SIGKILL", container])
    kube.run(
        "wait",
        "--for=jsonpath={.status.containerStatuses[0].lastState.terminated.exitCode}=137",
        f"pod/{pod}",
        "--timeout=30s",
    )
    last = kube.get(f"pod/{pod}")["status"]["containerStatuses"][0]["lastState"]["terminated"]
    return bool(last["containerID"].endswith(container))


def _container_id(kube: Kube, pod: str) -> str:
    statuses = kube.get(f"pod/{pod}")["status"].get("containerStatuses", [])
    if not statuses or "containerID" not in statuses[0]:
        raise DemoFailed(f"pod {pod} has no running container: {json.dumps(statuses)}")
    identity: str = statuses[0]["containerID"]
    return identity.removeprefix("containerd://")
