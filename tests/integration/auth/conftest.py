"""A tenant in the cluster of the tests."""

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from kubernetes import client
from tests.integration.auth.tenant import VERBS, Tenant, administrator, grant

from queue_operator.auth.protocol import CONNECT, QUEUE_WORKERS
from queue_operator.devcluster import ClusterInfo


@pytest.fixture(scope="session")
def kubeconfig(cluster: ClusterInfo) -> str:
    return str(cluster.kubeconfig)


@pytest.fixture(scope="session")
def tenant(kubeconfig: str) -> Iterator[Tenant]:
    settings = administrator(kubeconfig)
    api = client.ApiClient(settings)
    core: Any = client.CoreV1Api(api)
    namespace = f"auth-{uuid.uuid4().hex[:8]}"
    core.create_namespace({"metadata": {"name": namespace}})
    rbac = client.RbacAuthorizationV1Api(api)
    grant(core, rbac, namespace, "caller", "create", "get")
    grant(core, rbac, namespace, "worker", CONNECT, resource=QUEUE_WORKERS)
    for verb in VERBS:
        grant(core, rbac, namespace, verb, verb)
    yield Tenant(namespace, core)
    core.delete_namespace(namespace)
