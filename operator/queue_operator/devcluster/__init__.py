"""A real Kubernetes cluster and a real PostgreSQL on one machine, for development."""

from queue_operator.devcluster.cluster import (
    ClusterStatus,
    default_provider,
    down,
    load_image,
    status,
    statuses,
    up,
)
from queue_operator.devcluster.containers import container_runtime
from queue_operator.devcluster.errors import DevClusterError
from queue_operator.devcluster.existing import ExistingOptions
from queue_operator.devcluster.images import build_image
from queue_operator.devcluster.needs import Finding, Purpose, ensure, findings
from queue_operator.devcluster.postgres import Postgres
from queue_operator.devcluster.progress import Progress, progress_for
from queue_operator.devcluster.provider import PROVIDERS
from queue_operator.devcluster.state import ClusterInfo
from queue_operator.devcluster.toolchain import install_command

__all__ = [
    "PROVIDERS",
    "ClusterInfo",
    "ClusterStatus",
    "DevClusterError",
    "ExistingOptions",
    "Finding",
    "Postgres",
    "Progress",
    "Purpose",
    "build_image",
    "container_runtime",
    "default_provider",
    "down",
    "ensure",
    "findings",
    "install_command",
    "load_image",
    "progress_for",
    "status",
    "statuses",
    "up",
]
