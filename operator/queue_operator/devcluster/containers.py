"""The container runtime of a cluster's node, for those who want to break things."""

from __future__ import annotations

from queue_operator.devcluster.binaries import binaries_dir
from queue_operator.devcluster.errors import DevClusterError
from queue_operator.devcluster.kind import kind_name
from queue_operator.devcluster.node import ctr_command
from queue_operator.devcluster.provider import KIND, LOCAL
from queue_operator.devcluster.state import ClusterInfo, existing_folder


def container_runtime(cluster: ClusterInfo) -> list[str]:
    """The words of a `ctr` command for the namespace of the kubelet's containers.

    Raises DevClusterError for a cluster whose node is not this machine's.
    """
    if cluster.provider == LOCAL:
        command = ctr_command(binaries_dir(), existing_folder(cluster.name))
        return [str(word) for word in command]
    if cluster.provider == KIND:
        node = f"{kind_name(existing_folder(cluster.name))}-control-plane"
        return ["docker", "exec", node, "ctr", "--namespace", "k8s.io"]
    raise DevClusterError(f"the containers of a {cluster.provider} cluster are out of reach")
