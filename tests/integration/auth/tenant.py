"""A service account of a real cluster, its pods and its rights."""

from dataclasses import dataclass
from typing import Any

from kubernetes import client, config

AUDIENCE = "queue-operator"
VERBS = ("create", "get", "list", "update", "delete")
API_AUDIENCE = "https://kubernetes.default.svc.cluster.local"


@dataclass(frozen=True)
class Tenant:
    """A namespace whose service account `caller` may create and get queuejobs there, and whose
    `worker` may connect. Others are named after the one verb that they may do to queuejobs.
    """

    namespace: str
    core: Any  # The client's types deny the plain dictionaries it takes.

    def token(self, *, account: str = "caller", audience: str = AUDIENCE, pod: Any = None) -> str:
        bound = pod and client.V1BoundObjectReference(
            api_version="v1", kind="Pod", name=pod.metadata.name, uid=pod.metadata.uid
        )
        spec = client.V1TokenRequestSpec(
            audiences=[audience], bound_object_ref=bound, expiration_seconds=3600
        )
        request = client.AuthenticationV1TokenRequest(spec=spec)
        answer = self.core.create_namespaced_service_account_token(account, self.namespace, request)
        return str(answer.status.token)

    def pod(self, name: str, account: str = "caller") -> Any:
        """A pod that no node runs: its token needs only the object."""
        container = client.V1Container(name="idle", image="none.invalid/none")
        spec = client.V1PodSpec(
            service_account_name=account,
            containers=[container],
            scheduling_gates=[client.V1PodSchedulingGate(name="tests/never")],
        )
        body = client.V1Pod(metadata=client.V1ObjectMeta(name=name), spec=spec)
        return self.core.create_namespaced_pod(self.namespace, body)

    def worker_token(self, name: str) -> str:
        """Of a pod that is made for it, of the account that may connect."""
        return self.token(account="worker", pod=self.pod(name, account="worker"))

    def delete_pod(self, name: str) -> None:
        self.core.delete_namespaced_pod(name, self.namespace, grace_period_seconds=0)


def administrator(kubeconfig: str) -> client.Configuration:
    settings = client.Configuration()
    load: Any = config.load_kube_config
    load(kubeconfig, client_configuration=settings)
    return settings


def grant(
    core: Any, rbac: Any, namespace: str, account: str, *verbs: str, resource: str = "queuejobs"
) -> None:
    """Makes a service account that may do this to the resource, and nothing else."""
    named = {"metadata": {"name": account}}
    core.create_namespaced_service_account(namespace, named)
    rule = {"apiGroups": ["queueoperator.dev"], "resources": [resource], "verbs": list(verbs)}
    rbac.create_namespaced_role(namespace, {**named, "rules": [rule]})
    binding = {
        **named,
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": account},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": namespace}],
    }
    rbac.create_namespaced_role_binding(namespace, binding)
