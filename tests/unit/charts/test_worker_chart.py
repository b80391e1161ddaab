"""The chart of the workers: what the SDK reads, an identity with one right, time to stop."""

from pathlib import Path
from typing import Any

import pytest
from tests.unit.charts.rendering import (
    Manifest,
    containers,
    environment,
    of_kind,
    only,
    pod_spec,
    rendered,
)

from queue_operator.auth.protocol import CONNECT, QUEUE_WORKERS
from queue_operator.crd.names import GROUP as API_GROUP
from queue_operator.worker.main import FORMATS, LEVELS
from queue_operator.worker.settings import DEFAULT_METRICS_PORT, WorkerSettings

CHART = "queue-worker"
WITH_MONITORS = "--api-versions=monitoring.coreos.com/v1/PodMonitor"
CAPTURE = "QUEUE_OPERATOR_CAPTURE_LOGS"
POOL: Manifest = {"tags": ["pool=a", "gpu"], "capacity": 50, "replicas": 2}
FULL: Manifest = {
    **POOL,
    "networkPolicy": {"enabled": True},
    "extraEnv": [{"name": "SMTP_HOST", "value": "mail"}],
    "extraVolumes": [{"name": "models", "emptyDir": {}}],
    "extraVolumeMounts": [{"name": "models", "mountPath": "/models"}],
    "priorityClassName": "batch",
}


def worker(values: Manifest) -> dict[str, Any]:
    (container,) = containers(pod_spec(rendered(CHART, values)))
    return container


@pytest.mark.parametrize("values", [{}, FULL])
def test_the_worker_is_restricted(values: Manifest) -> None:
    spec = pod_spec(rendered(CHART, values))
    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"]["runAsUser"] == 65532
    assert worker(values)["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "runAsNonRoot": True,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def test_the_workers_account_may_connect_and_nothing_else() -> None:
    values: Manifest = {"serviceAccount": {"create": False, "name": "mailers"}}
    manifests = rendered(CHART, values)
    role, binding = only(manifests, "Role"), only(manifests, "RoleBinding")
    assert role["rules"] == [
        {"apiGroups": [API_GROUP], "resources": [QUEUE_WORKERS], "verbs": [CONNECT]}
    ]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert [subject["name"] for subject in binding["subjects"]] == ["mailers"]
    assert pod_spec(manifests)["serviceAccountName"] == "mailers"


def test_somebody_else_may_grant_it() -> None:
    manifests = rendered(CHART, {"rbac": {"create": False}})
    assert not of_kind(manifests, "Role") + of_kind(manifests, "RoleBinding")


def test_the_sdk_finds_all_that_it_reads() -> None:
    container = worker(POOL)
    assert container["args"] == ["handlers:worker"]
    fields = {
        "metadata.name": "workers-7d9f",
        "metadata.namespace": "shop",
        "metadata.uid": "b0c1",
        "spec.nodeName": "node-1",
    }
    variables = {
        name: value if isinstance(value, str) else fields[value["fieldRef"]["fieldPath"]]
        for name, value in environment(container).items()
    }
    settings = WorkerSettings.from_environment(variables)
    assert settings == WorkerSettings(
        server="queue-operator.queue-operator.svc:50051",
        token_file=Path("/var/run/secrets/queue-operator/token"),
        tags=frozenset({"pool=a", "gpu"}),
        capacity=50,
        namespace="shop",
        worker_name="workers-7d9f",
        host="node-1",
        pod_uid="b0c1",
        grace_s=30.0,
        metrics_port=DEFAULT_METRICS_PORT,
    )


def test_opentelemetry_finds_its_collector() -> None:
    given = {"tracing": {"endpoint": "http://collector:4317", "serviceName": "mailer"}}
    told = environment(worker({**POOL, **given}))
    assert told["OTEL_EXPORTER_OTLP_ENDPOINT"] == "http://collector:4317"
    assert told["OTEL_SERVICE_NAME"] == "mailer"
    assert not [name for name in environment(worker(POOL)) if name.startswith("OTEL")]


def test_the_kubelet_knocks_where_the_worker_answers() -> None:
    ports = {port["name"]: port["containerPort"] for port in worker({})["ports"]}
    assert ports == {"health": WorkerSettings().health_port, "metrics": DEFAULT_METRICS_PORT}


def test_without_metrics_there_is_no_port_for_them() -> None:
    values: Manifest = {**FULL, "metrics": {"enabled": False, "podMonitor": {"enabled": True}}}
    manifests = rendered(CHART, values, WITH_MONITORS)
    assert [port["name"] for port in worker(values)["ports"]] == ["health"]
    assert environment(worker(values))["QUEUE_OPERATOR_METRICS_PORT"] == "0"
    assert of_kind(manifests, "PodMonitor") == []
    (policy,) = of_kind(manifests, "NetworkPolicy")
    assert [port["port"] for rule in policy["spec"]["ingress"] for port in rule["ports"]] == [
        "health"
    ]


def test_monitors_come_only_where_they_are_known_and_find_the_pods() -> None:
    values: Manifest = {"metrics": {"podMonitor": {"enabled": True, "labels": {"release": "p"}}}}
    assert of_kind(rendered(CHART, values), "PodMonitor") == []
    manifests = rendered(CHART, values, WITH_MONITORS)
    monitor = only(manifests, "PodMonitor")
    assert monitor["metadata"]["labels"]["release"] == "p"
    labels = only(manifests, "Deployment")["spec"]["template"]["metadata"]["labels"].items()
    assert monitor["spec"]["selector"]["matchLabels"].items() <= labels
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    assert endpoint["port"] in {port["name"] for port in worker(values)["ports"]}
    assert endpoint["relabelings"] == [{"targetLabel": "job", "replacement": "queue-worker"}]


def test_scrapers_can_be_named() -> None:
    peer = {"namespaceSelector": {"matchLabels": {"team": "monitoring"}}}
    values: Manifest = {"networkPolicy": {"enabled": True, "scrapers": [peer]}}
    (policy,) = of_kind(rendered(CHART, values), "NetworkPolicy")
    rules = {rule["ports"][0]["port"]: rule.get("from") for rule in policy["spec"]["ingress"]}
    assert rules == {"health": None, "metrics": [peer]}


@pytest.mark.parametrize("form", ["json", "text", "none"])
def test_the_command_understands_how_lines_are_to_be_written(form: str) -> None:
    logs = {"format": form, "level": "warning", "capture": "off"}
    told = environment(worker({"logs": logs}))
    assert told["QUEUE_OPERATOR_LOG_FORMAT"] in FORMATS
    assert told["QUEUE_OPERATOR_LOG_LEVEL"] in LEVELS
    settings = WorkerSettings.from_environment({name: told[name] for name in (CAPTURE,)})
    assert settings.capture_logs == "off"


def test_the_token_is_good_for_the_operator_alone() -> None:
    spec = pod_spec(rendered(CHART, POOL))
    tokens = [
        source["serviceAccountToken"]
        for volume in spec["volumes"]
        for source in volume.get("projected", {}).get("sources", [])
    ]
    assert tokens == [{"path": "token", "audience": "queue-operator", "expirationSeconds": 3600}]
    assert {"name": "token", "mountPath": "/var/run/secrets/queue-operator", "readOnly": True} in (
        worker(POOL)["volumeMounts"]
    )


def test_an_audience_stays_a_string() -> None:
    spec = pod_spec(rendered(CHART, {"token": {"audience": "123"}}))
    (source,) = next(v for v in spec["volumes"] if v["name"] == "token")["projected"]["sources"]
    assert source["serviceAccountToken"]["audience"] == "123"


def test_a_worker_has_no_right_of_the_cluster() -> None:
    kinds = {manifest["kind"] for manifest in rendered(CHART, FULL)}
    assert kinds == {
        "Deployment",
        "ServiceAccount",
        "Role",
        "RoleBinding",
        "PodDisruptionBudget",
        "NetworkPolicy",
    }


@pytest.mark.parametrize("grace", [0, 30, 3600])
def test_the_kubelet_waits_longer_than_the_worker(grace: int) -> None:
    values = {"graceSeconds": grace, "graceMarginSeconds": 5}
    spec = pod_spec(rendered(CHART, values))
    assert environment(worker(values))["QUEUE_OPERATOR_GRACE_S"] == str(grace)
    assert spec["terminationGracePeriodSeconds"] == grace + 5


def test_an_autoscaler_can_own_the_number() -> None:
    assert "replicas" not in only(rendered(CHART, {"replicas": None}), "Deployment")["spec"]
    assert only(rendered(CHART, {"replicas": 0}), "Deployment")["spec"]["replicas"] == 0


def test_spreading_and_budget_select_the_pods() -> None:
    manifests = rendered(CHART, FULL)
    labels = only(manifests, "Deployment")["spec"]["template"]["metadata"]["labels"].items()
    (spread,) = pod_spec(manifests)["topologySpreadConstraints"]
    assert spread["labelSelector"]["matchLabels"].items() <= labels
    for kind, field in (("PodDisruptionBudget", "selector"), ("NetworkPolicy", "podSelector")):
        selector = only(manifests, kind)["spec"][field]["matchLabels"]
        assert selector.items() <= labels


def test_the_policy_lets_the_operator_be_reached() -> None:
    values = {"server": "queue.example:6000", "networkPolicy": {"enabled": True}}
    (policy,) = of_kind(rendered(CHART, values), "NetworkPolicy")
    ports = [port["port"] for rule in policy["spec"]["egress"] for port in rule["ports"]]
    assert ports == [53, 53, 6000]


def test_pods_of_a_long_release_name_keep_names_that_are_labels() -> None:
    manifests = rendered(CHART, {}, release="a" * 53)
    name = only(manifests, "Deployment")["metadata"]["name"]
    # A Deployment's pods add a hyphen, up to 10 characters, a hyphen and 5 characters.
    assert len(name) + 17 <= 63


@pytest.mark.parametrize("kind", ["caConfigMap", "caSecret"])
def test_the_sdk_finds_its_certificates(kind: str) -> None:
    values: Manifest = {"tls": {kind: "operator-ca", "caKey": "root.pem"}}
    volumes = {v["name"]: v for v in pod_spec(rendered(CHART, values))["volumes"]}
    source = {"caConfigMap": ("configMap", "name"), "caSecret": ("secret", "secretName")}[kind]
    assert volumes["ca"][source[0]][source[1]] == "operator-ca"
    assert "certificate" not in volumes
    assert "QUEUE_OPERATOR_CERT_FILE" not in environment(worker(values))


def test_each_file_of_the_sdk_is_below_a_mount_of_its_secret() -> None:
    values: Manifest = {"tls": {"caSecret": "operator-ca", "certificateSecret": "mine"}}
    spec = pod_spec(rendered(CHART, values))
    secrets = {v["name"]: v["secret"]["secretName"] for v in spec["volumes"] if "secret" in v}
    mounts = {m["mountPath"]: secrets.get(m["name"]) for m in worker(values)["volumeMounts"]}
    variables = {k: v for k, v in environment(worker(values)).items() if isinstance(v, str)}
    settings = WorkerSettings.from_environment(variables)
    for file, secret, name in (
        (settings.ca_file, "operator-ca", "ca.crt"),
        (settings.cert_file, "mine", "tls.crt"),
        (settings.key_file, "mine", "tls.key"),
    ):
        assert file is not None
        assert (mounts[str(file.parent)], file.name) == (secret, name)
