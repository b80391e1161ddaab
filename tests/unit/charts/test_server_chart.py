"""The chart of the operator: safe pods, rights, Secrets that keep any password."""

import base64
import json
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from tests.unit.charts.rendering import (
    NAMESPACE,
    RELEASE,
    Manifest,
    containers,
    environment,
    of_kind,
    only,
    pod_spec,
    rendered,
    template,
)

from queue_operator.api.server import SHUTDOWN_S
from queue_operator.controller.ownership import LEASE
from queue_operator.metrics.telling import LAST_COUNT_S, LAST_WORD_S
from queue_operator.rpc.server import STOP_GRACE_S
from queue_operator.settings import GrpcSettings, RestSettings, Settings
from queue_operator.supervisor.child import STOP_S

CHART = "queue-operator"
NASTY = "p@:/%#?&\\ \"'é$1"
DATABASE: Manifest = {"database": {"host": "db.example", "password": NASTY}}
STATIC: Manifest = {
    "database": {"existingSecret": "given"},
    "auth": {"mode": "static", "tokens": {"ci": NASTY}},
}
EVERYTHING: Manifest = {
    **DATABASE,
    "networkPolicy": {"enabled": True},
    "metrics": {"serviceMonitor": {"enabled": True, "labels": {"release": "monitoring"}}},
    "watchNamespaces": ["team-a", "team-b"],
    "rbac": {"clusterWide": False},
    "settings": {"queue": {"lease_ttl_s": 10}},
    "priorityClassName": "system-cluster-critical",
    "extraVolumes": [{"name": "ca", "configMap": {"name": "ca"}}],
    "extraVolumeMounts": [{"name": "ca", "mountPath": "/ca"}],
}
WITH_MONITORS = "--api-versions=monitoring.coreos.com/v1/ServiceMonitor"
CLUSTER_KINDS = {
    "ClusterRole",
    "ClusterRoleBinding",
    "CustomResourceDefinition",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
}


def dsn(values: Manifest) -> str:
    secret = only(rendered(CHART, values), "Secret")
    return base64.b64decode(secret["data"]["dsn"]).decode()


def server_environment(values: Manifest) -> dict[str, Any]:
    return environment(pod_spec(rendered(CHART, values))["containers"][0])


@pytest.mark.parametrize("values", [DATABASE, STATIC, EVERYTHING])
def test_every_container_is_restricted(values: Manifest) -> None:
    spec = pod_spec(rendered(CHART, values, WITH_MONITORS))
    assert spec["securityContext"]["runAsUser"] == 65532
    assert [container["name"] for container in containers(spec)] == ["migrate", "server"]
    for container in containers(spec):
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "runAsNonRoot": True,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        }
        assert "/tmp" in [mount["mountPath"] for mount in container["volumeMounts"]]  # noqa: S108


def test_a_pod_has_the_time_that_all_its_parts_may_take_to_stop() -> None:
    """They stop one after the other, each for its longest."""
    given = Settings()
    children = STOP_S
    grpc = 2 * STOP_GRACE_S
    metrics = LAST_COUNT_S + 2 * LAST_WORD_S + given.metrics.linger_s
    parts_s = (
        *(children, grpc, SHUTDOWN_S, metrics),
        *(given.queue.lease_ttl_s, given.tracing.flush_s),
    )
    spec = pod_spec(rendered(CHART, DATABASE))
    assert sum(parts_s) <= spec["terminationGracePeriodSeconds"]


def test_messages_go_where_callback_urls_lead_and_nowhere_inside() -> None:
    policy = only(rendered(CHART, EVERYTHING), "NetworkPolicy")
    ports = [443, 8443]
    [rule] = [r for r in policy["spec"]["egress"] if {"port": 8443} in r["ports"]]
    assert {"port": 443} in rule["ports"]
    blocked = {cidr for peer in rule["to"] for cidr in peer["ipBlock"]["except"]}
    assert {"10.0.0.0/8", "169.254.0.0/16", "fc00::/7"} <= blocked
    given = {**EVERYTHING, "networkPolicy": {"enabled": True, "webhooks": {"ports": ports}}}
    [rule] = [
        r
        for r in only(rendered(CHART, given), "NetworkPolicy")["spec"]["egress"]
        if {"port": 8443} in r["ports"]
    ]
    assert rule["ports"] == [{"port": port} for port in ports]
    without = {**EVERYTHING, "webhooks": {"enabled": False}}
    egress = only(rendered(CHART, without), "NetworkPolicy")["spec"]["egress"]
    assert not [r for r in egress if {"port": 8443} in r["ports"]]


def test_secrets_of_namespaces_are_mounted_and_inside_targets_named() -> None:
    given = {**DATABASE, "webhooks": {"secretsSecret": "signing", "allow": ["10.1.0.0/16"]}}
    spec = pod_spec(rendered(CHART, given))
    [server] = spec["containers"]
    found = {one["name"]: one.get("value") for one in server["env"]}
    folder = found["QUEUE_OPERATOR_WEBHOOKS__SECRETS_DIR"]
    assert json.loads(found["QUEUE_OPERATOR_WEBHOOKS__ALLOW"] or "") == ["10.1.0.0/16"]
    [mount] = [one for one in server["volumeMounts"] if one["mountPath"] == folder]
    [volume] = [one for one in spec["volumes"] if one["name"] == mount["name"]]
    assert volume["secret"] == {"secretName": "signing"}
    plain = pod_spec(rendered(CHART, DATABASE))["containers"][0]
    names = {one["name"] for one in plain["env"]}
    assert "QUEUE_OPERATOR_WEBHOOKS__SECRETS_DIR" not in names


def test_any_password_reaches_the_database() -> None:
    parsed = conninfo_to_dict(dsn(DATABASE))
    assert parsed == {
        "user": "queue_operator",
        "password": NASTY,
        "host": "db.example",
        "port": "5432",
        "dbname": "queue_operator",
    }


def test_user_name_and_parameters_are_escaped_too() -> None:
    address = dsn(
        {
            "database": {
                "host": "fd00::1",
                "port": 6432,
                "name": "a/b c",
                "user": "o'neil@corp+x",
                "password": NASTY,
                "parameters": {"sslmode": "verify-full", "options": "-c search_path=a&b"},
            }
        }
    )
    parsed = conninfo_to_dict(address)
    assert parsed["host"] == "fd00::1"
    assert parsed["port"] == "6432"
    assert parsed["dbname"] == "a/b c"
    assert parsed["user"] == "o'neil@corp+x"
    assert parsed["options"] == "-c search_path=a&b"
    assert parse_qs(urlsplit(address).query)["sslmode"] == ["verify-full"]


def test_a_whole_address_is_kept_as_it_is() -> None:
    address = "host=db password='a b'"
    assert dsn({"database": {"dsn": address}}) == address


def test_static_tokens_survive_as_json() -> None:
    secret = only(rendered(CHART, STATIC), "Secret")
    assert json.loads(base64.b64decode(secret["data"]["tokens"])) == {"ci": NASTY}
    assert server_environment(STATIC)["QUEUE_OPERATOR_AUTH__TOKENS"] == {
        "secretKeyRef": {"name": secret["metadata"]["name"], "key": "tokens"}
    }


@pytest.mark.parametrize("others", [{}, {"tokens": {"ci": NASTY}}])
def test_a_file_of_tokens_is_mounted(others: Manifest) -> None:
    auth = {"mode": "static", "tokensFileSecret": "callers", "tokensFileKey": "all.yaml", **others}
    manifests = rendered(CHART, {"database": {"existingSecret": "given"}, "auth": auth})
    assert len(of_kind(manifests, "Secret")) == len(others)
    spec = pod_spec(manifests)
    [server] = spec["containers"]
    given = environment(server)
    assert ("QUEUE_OPERATOR_AUTH__TOKENS" in given) == bool(others)
    folder, name = "/var/run/secrets/queue-operator-tokens", "tokens-file"
    assert given["QUEUE_OPERATOR_AUTH__TOKENS_FILE"] == f"{folder}/all.yaml"
    # A whole directory: the kubelet does not renew single files.
    assert {"name": name, "mountPath": folder, "readOnly": True} in server["volumeMounts"]
    assert {"name": name, "secret": {"secretName": "callers"}} in spec["volumes"]


@pytest.mark.parametrize("values", [DATABASE, STATIC])
def test_secrets_are_nowhere_outside_the_secret(values: Manifest) -> None:
    secret = only(rendered(CHART, values), "Secret")
    (encoded,) = secret["data"].values()
    spellings = {NASTY, encoded, base64.b64encode(NASTY.encode()).decode()}
    if "dsn" in secret["data"]:
        escaped = urlsplit(base64.b64decode(encoded).decode()).password
        assert escaped is not None
        assert unquote(escaped) == NASTY
        spellings.add(escaped)
    others = [m for m in rendered(CHART, values) if m["kind"] != "Secret"]
    text = json.dumps(others, ensure_ascii=False)
    leaked = [s for s in spellings if s in text or json.dumps(s, ensure_ascii=False)[1:-1] in text]
    assert leaked == []


def test_an_upgrade_without_change_changes_nothing() -> None:
    first, second, third = (
        template(CHART, EVERYTHING, *options)
        for options in ((), ("--is-upgrade",), ("--is-upgrade",))
    )
    assert first == second == third


def test_a_new_password_restarts_the_pods() -> None:
    def checksum(password: str) -> str:
        values = {"database": {"host": "db", "password": password}}
        pod = only(rendered(CHART, values), "Deployment")["spec"]["template"]
        found: str = pod["metadata"]["annotations"]["checksum/secret"]
        return found

    assert checksum("a") == checksum("a") != checksum("b")


def test_an_existing_secret_is_used_and_none_is_made() -> None:
    values = {"database": {"existingSecret": "mine", "existingSecretKey": "uri"}}
    manifests = rendered(CHART, values)
    assert of_kind(manifests, "Secret") == []
    for container in containers(pod_spec(manifests)):
        assert environment(container)["QUEUE_OPERATOR_DATABASE__DSN"] == {
            "secretKeyRef": {"name": "mine", "key": "uri"}
        }


def test_a_pooler_and_the_line_past_it_reach_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    listen = make_conninfo(host="db", password=NASTY)
    values = {"database": {"host": "pooler", "pooler": True, "listenDsn": listen}}
    secret = only(rendered(CHART, values), "Secret")
    kept = base64.b64decode(secret["data"]["listenDsn"]).decode()
    assert conninfo_to_dict(kept)["password"] == NASTY
    given = server_environment(values)
    assert given["QUEUE_OPERATOR_DATABASE__LISTEN_DSN"] == {
        "secretKeyRef": {"name": secret["metadata"]["name"], "key": "listenDsn"}
    }
    monkeypatch.setenv("QUEUE_OPERATOR_DATABASE__POOLER", given["QUEUE_OPERATOR_DATABASE__POOLER"])
    monkeypatch.setenv("QUEUE_OPERATOR_DATABASE__LISTEN_DSN", kept)
    database = Settings().database
    assert database.pooler
    assert database.listen_dsn is not None
    assert database.listen_dsn.get_secret_value() == listen


def test_without_a_pooler_nothing_is_said_of_a_line_past_it() -> None:
    given = server_environment(DATABASE)
    assert given["QUEUE_OPERATOR_DATABASE__POOLER"] == "false"
    assert "QUEUE_OPERATOR_DATABASE__LISTEN_DSN" not in given


def test_the_line_past_the_pooler_may_be_a_key_of_an_existing_secret() -> None:
    database = {"existingSecret": "mine", "pooler": True, "existingSecretListenKey": "direct"}
    manifests = rendered(CHART, {"database": database})
    assert of_kind(manifests, "Secret") == []
    server = environment(pod_spec(manifests)["containers"][0])
    assert server["QUEUE_OPERATOR_DATABASE__LISTEN_DSN"] == {
        "secretKeyRef": {"name": "mine", "key": "direct"}
    }


def test_settings_reach_the_server_as_it_reads_them(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {
        **DATABASE,
        "watchNamespaces": ["team-a", "team-b"],
        "auth": {"mode": "none"},
        "tracing": {"endpoint": "http://collector:4317", "sampleRatio": 0.25},
        "settings": {
            "queue": {"lease_ttl_s": 2.5, "claim_batch": 1000000},
            "limits": {"payload_bytes": 10485760},
        },
    }
    for name, value in server_environment(values).items():
        if isinstance(value, str):
            monkeypatch.setenv(name, value)
    settings = Settings()
    assert settings.queue.lease_ttl_s == 2.5
    assert settings.queue.claim_batch == 1_000_000
    assert settings.limits.payload_bytes == 10 * 1024 * 1024
    assert settings.controller.namespaces == ("team-a", "team-b")
    assert settings.auth.mode == "none"
    assert settings.tracing.endpoint == "http://collector:4317"
    assert settings.tracing.sample_ratio == 0.25


def test_one_replica_at_a_time_by_default() -> None:
    assert only(rendered(CHART, DATABASE), "Deployment")["spec"]["strategy"]["type"] == "Recreate"


def test_rights_are_the_smallest_that_serve_the_cluster() -> None:
    manifests = rendered(CHART, DATABASE)
    bound = {m["roleRef"]["name"] for m in of_kind(manifests, "ClusterRoleBinding")}
    rules = [
        rule
        for role in of_kind(manifests, "ClusterRole")
        if role["metadata"]["name"] in bound
        for rule in role["rules"]
    ]
    assert "*" not in json.dumps(rules)
    granted = {
        (resource, verb)
        for rule in rules
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert granted == {
        *(("queuejobs", verb) for verb in ("get", "list", "watch")),
        *(("queueworkers", verb) for verb in ("get", "list", "watch", "create", "delete")),
        *(("leases", verb) for verb in ("get", "update", "create")),
        ("events", "create"),
        ("queuejobs/status", "patch"),
        ("queueworkers/status", "patch"),
        ("tokenreviews", "create"),
        ("subjectaccessreviews", "create"),
        ("namespaces", "get"),
        ("customresourcedefinitions", "get"),
    }
    named = [rule for rule in rules if "resourceNames" in rule]
    assert {r for rule in named for r in rule["resources"]} == {
        "namespaces",
        "customresourcedefinitions",
        "leases",
    }
    assert [r["resourceNames"] for r in named if r["resources"] == ["leases"]] == [[LEASE]]


def test_only_who_talks_to_the_api_server_has_a_token() -> None:
    assert pod_spec(rendered(CHART, DATABASE))["automountServiceAccountToken"] is True
    alone = {**STATIC, "controller": {"enabled": False}}
    assert pod_spec(rendered(CHART, alone))["automountServiceAccountToken"] is False


def test_a_namespaced_install_needs_no_cluster_right() -> None:
    values = {
        **DATABASE,
        "crds": {"install": False},
        "rbac": {"clusterWide": False, "clusterRights": False, "aggregate": False},
    }
    manifests = rendered(CHART, values)
    assert {m["kind"] for m in manifests}.isdisjoint(CLUSTER_KINDS)
    assert {m["metadata"]["namespace"] for m in manifests} == {NAMESPACE}
    served = server_environment(values)["QUEUE_OPERATOR_CONTROLLER__NAMESPACES"]
    assert json.loads(served) == [NAMESPACE]


def test_a_namespaced_install_has_a_role_in_each_served_namespace() -> None:
    manifests = rendered(CHART, EVERYTHING)
    for kind in ("Role", "RoleBinding"):
        found = {m["metadata"]["namespace"] for m in of_kind(manifests, kind)}
        assert found == {"team-a", "team-b"}
    subjects = [s for m in of_kind(manifests, "RoleBinding") for s in m["subjects"]]
    assert {(s["name"], s["namespace"]) for s in subjects} == {(RELEASE, NAMESPACE)}


def test_two_releases_share_no_cluster_wide_name() -> None:
    values = {**DATABASE, "crds": {"install": False}}

    def names(namespace: str) -> set[str]:
        found = rendered(CHART, values, namespace=namespace)
        return {m["metadata"]["name"] for m in found if m["kind"] in CLUSTER_KINDS}

    assert names("one")
    assert names("one").isdisjoint(names("two"))


def test_definitions_stay_when_the_release_goes() -> None:
    manifests = rendered(CHART, DATABASE)
    definitions = of_kind(manifests, "CustomResourceDefinition")
    assert {m["spec"]["names"]["kind"] for m in definitions} == {"QueueJob", "QueueWorker"}
    for definition in definitions:
        assert definition["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    without = rendered(CHART, {**DATABASE, "crds": {"install": False}})
    assert of_kind(without, "CustomResourceDefinition") == []


def test_monitors_come_only_where_they_are_known() -> None:
    assert of_kind(rendered(CHART, EVERYTHING), "ServiceMonitor") == []
    manifests = rendered(CHART, EVERYTHING, WITH_MONITORS)
    monitor = only(manifests, "ServiceMonitor")
    wanted = monitor["spec"]["selector"]["matchLabels"].items()
    selected = [
        m for m in of_kind(manifests, "Service") if wanted <= m["metadata"]["labels"].items()
    ]
    assert [port["name"] for service in selected for port in service["spec"]["ports"]] == [
        "metrics"
    ]


def test_the_namespace_of_jobs_is_not_taken_for_that_of_the_operator() -> None:
    """The labels of the metrics come first, and of the target's own none is called alike."""
    values = {**EVERYTHING, "fullnameOverride": "mine"}
    monitor = only(rendered(CHART, values, WITH_MONITORS), "ServiceMonitor")
    [endpoint] = monitor["spec"]["endpoints"]
    assert endpoint["honorLabels"] is True
    assert endpoint["relabelings"] == [
        {"sourceLabels": ["namespace"], "targetLabel": "operator_namespace"},
        {"action": "labeldrop", "regex": "namespace"},
        {"targetLabel": "job", "replacement": "mine"},
    ]


def test_services_and_budget_select_the_pods() -> None:
    manifests = rendered(CHART, EVERYTHING)
    labels = only(manifests, "Deployment")["spec"]["template"]["metadata"]["labels"].items()
    selectors = [m["spec"]["selector"] for m in of_kind(manifests, "Service")]
    selectors += [only(manifests, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"]]
    selectors += [only(manifests, "NetworkPolicy")["spec"]["podSelector"]["matchLabels"]]
    assert all(selector.items() <= labels for selector in selectors)
    ports = {port["name"] for port in pod_spec(manifests)["containers"][0]["ports"]}
    targets = {p["targetPort"] for m in of_kind(manifests, "Service") for p in m["spec"]["ports"]}
    assert targets == {"rest", "grpc", "metrics"} <= ports


def test_ports_are_those_the_server_listens_on() -> None:
    settings = Settings()
    ports = {
        p["name"]: p["containerPort"]
        for p in pod_spec(rendered(CHART, DATABASE))["containers"][0]["ports"]
    }
    assert ports == {
        "rest": settings.rest.port,
        "grpc": settings.grpc.port,
        "metrics": settings.metrics.port,
        "health": settings.health.port,
    }


@pytest.mark.parametrize(
    ("values", "prefix", "kind"),
    [
        ({"existingSecret": "cert", "clientCaSecret": "clients"}, "GRPC", GrpcSettings),
        ({"rest": {"existingSecret": "cert", "clientCaSecret": "clients"}}, "REST", RestSettings),
    ],
)
def test_a_port_finds_its_certificates_in_the_secrets_of_the_values(
    values: Manifest, prefix: str, kind: type[GrpcSettings | RestSettings]
) -> None:
    spec = pod_spec(rendered(CHART, {**DATABASE, "tls": values}))
    secrets = {v["name"]: v["secret"]["secretName"] for v in spec["volumes"] if "secret" in v}
    mounts = {m["mountPath"]: secrets.get(m["name"]) for m in spec["containers"][0]["volumeMounts"]}
    named = {
        name.removeprefix(f"QUEUE_OPERATOR_{prefix}__").lower(): value
        for name, value in server_environment({**DATABASE, "tls": values}).items()
        if name.startswith(f"QUEUE_OPERATOR_{prefix}__")
    }
    settings = kind(**named)
    for file, secret, name in (
        (settings.certificate_file, "cert", "tls.crt"),
        (settings.key_file, "cert", "tls.key"),
        (settings.client_ca_file, "clients", "ca.crt"),
    ):
        assert file is not None
        assert (mounts[str(file.parent)], file.name) == (secret, name)


@pytest.mark.parametrize(("secret", "protocol"), [("", "http"), ("cert", "https")])
def test_the_service_says_how_the_rest_port_is_spoken_to(secret: str, protocol: str) -> None:
    values: Manifest = {**DATABASE, "tls": {"rest": {"existingSecret": secret}}}
    ports = [p for m in of_kind(rendered(CHART, values), "Service") for p in m["spec"]["ports"]]
    assert [p["appProtocol"] for p in ports if p["name"] == "rest"] == [protocol]


def test_without_a_certificate_nothing_speaks_of_tls() -> None:
    assert not any("FILE" in name for name in server_environment(DATABASE))
