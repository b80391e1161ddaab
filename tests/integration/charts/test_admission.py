"""A real API server takes every manifest, and its restricted profile every pod."""

from typing import Any

import pytest
import yaml
from tests.integration.charts.conftest import CHARTS, Namespace

Values = dict[str, Any]

SERVER: Values = {"database": {"host": "db", "password": "p@:/%#?&\\ \"'é$1"}}
SERVER_FULL: Values = {
    **SERVER,
    "replicas": 3,
    "controller": {"enabled": False},
    "auth": {"mode": "static", "tokens": {"ci": "token"}},
    "networkPolicy": {"enabled": True, "clients": [{"namespaceSelector": {}}]},
    "settings": {"queue": {"lease_ttl_s": 10}, "limits": {"payload_bytes": 10485760}},
    "extraVolumes": [{"name": "scratch", "emptyDir": {}}],
    "extraVolumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
}
WORKER_FULL: Values = {
    "tags": ["pool=a"],
    "replicas": None,
    "networkPolicy": {"enabled": True},
    "extraEnvFrom": [{"configMapRef": {"name": "shop", "optional": True}}],
}
CLUSTERS_IDS: Values = {
    "podSecurityContext": {"runAsUser": None, "runAsGroup": None, "fsGroup": None}
}
CASES = [
    ("queue-operator", SERVER),
    ("queue-operator", SERVER_FULL),
    ("queue-worker", {}),
    ("queue-worker", WORKER_FULL),
    ("queue-operator", {**SERVER, **CLUSTERS_IDS}),
    ("queue-worker", CLUSTERS_IDS),
]


def rendered(namespace: Namespace, chart: str, values: Values) -> str:
    return namespace.helm("template", "release", str(CHARTS / chart), values=values)


def the_pod(manifests: str) -> Values:
    """The pod that the rendered Deployment would make."""
    (deployment,) = (m for m in yaml.safe_load_all(manifests) if m and m["kind"] == "Deployment")
    template = deployment["spec"]["template"]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "probe", "labels": template["metadata"]["labels"]},
        "spec": {**template["spec"], "serviceAccountName": "default"},
    }


@pytest.mark.parametrize(("chart", "values"), CASES)
def test_the_api_server_takes_every_manifest(
    namespace: Namespace, chart: str, values: Values
) -> None:
    done = namespace.try_kubectl(
        "apply",
        "--server-side",
        "--force-conflicts",
        "--dry-run=server",
        "--validate=strict",
        "--filename=-",
        text=rendered(namespace, chart, values),
    )
    assert done.returncode == 0, done.stderr
    # The restricted profile only warns about a Deployment, and so does a deprecated field.
    assert done.stderr == ""
    assert "deployment.apps/release" in done.stdout


@pytest.mark.parametrize(("chart", "values"), CASES)
def test_the_restricted_profile_admits_the_pod(
    namespace: Namespace, chart: str, values: Values
) -> None:
    pod = the_pod(rendered(namespace, chart, values))
    namespace.kubectl("create", "--dry-run=server", "--filename=-", text=yaml.safe_dump(pod))
    pod["spec"]["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = True
    refused = namespace.try_kubectl(
        "create", "--dry-run=server", "--filename=-", text=yaml.safe_dump(pod)
    )
    assert refused.returncode != 0
    assert "violates PodSecurity" in refused.stderr
