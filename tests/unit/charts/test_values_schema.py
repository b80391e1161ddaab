"""Values that cannot work are refused by name, before anything reaches the cluster."""

import pytest
from tests.unit.charts.rendering import CHARTS, Manifest, helm, refusal, rendered

DATABASE: Manifest = {"host": "db"}

SERVER_REFUSALS: list[tuple[Manifest, str]] = [
    ({"databse": {}}, "databse"),
    ({"database": {**DATABASE, "passwort": "x"}}, "passwort"),
    ({"database": {"host": "postgresql://db"}}, "/database/host"),
    ({"database": {**DATABASE, "port": 70000}}, "/database/port"),
    ({"database": {**DATABASE, "password": 12345}}, "/database/password"),
    ({"database": {"dsn": "mysql//db"}}, "/database/dsn"),
    ({"database": {**DATABASE, "pooler": "yes"}}, "/database/pooler"),
    ({"database": {**DATABASE, "listenDsn": "db.example"}}, "/database/listenDsn"),
    ({"settings": {"database": {"listen_dsn": "postgresql://a:b@c/d"}}}, "listen_dsn"),
    ({"auth": {"mode": "oidc"}}, "/auth/mode"),
    ({"image": {"tag": "not a tag"}}, "/image/tag"),
    ({"image": {"pullPolicy": "Sometimes"}}, "/image/pullPolicy"),
    ({"image": {"digest": "sha256:abc"}}, "/image/digest"),
    ({"podSecurityContext": {"runAsUser": 0}}, "/podSecurityContext/runAsUser"),
    ({"podSecurityContext": {"runAsNonRoot": False}}, "runAsNonRoot"),
    ({"enabled": "yes"}, "/enabled"),
    ({"replicas": -1}, "/replicas"),
    ({"replicas": "2"}, "/replicas"),
    ({"strategy": {"type": "BlueGreen"}}, "/strategy/type"),
    ({"watchNamespaces": ["Team_A"]}, "/watchNamespaces"),
    ({"settings": {"queue": {"lease_ttl": 5}}}, "lease_ttl"),
    ({"settings": {"queue": {"lease_ttl_s": 0}}}, "/settings/queue/lease_ttl_s"),
    ({"settings": {"database": {"dsn": "postgresql://a:b@c/d"}}}, "dsn"),
    ({"settings": {"controller": {"namespaces": ["a"]}}}, "namespaces"),
    ({"extraEnv": [{"name": "NOT-A-NAME"}]}, "/extraEnv/0/name"),
    ({"extraVolumes": [{"name": "tmp", "emptyDir": {}}]}, "/extraVolumes/0/name"),
    ({"podDisruptionBudget": {"maxUnavailable": 0}}, "/podDisruptionBudget/maxUnavailable"),
    ({"metrics": {"serviceMonitor": {"interval": "often"}}}, "/metrics/serviceMonitor/interval"),
    ({"tls": {"existingSecret": "Not_A_Name"}}, "/tls/existingSecret"),
    ({"tracing": {"endpoint": "collector:4317"}}, "/tracing/endpoint"),
    ({"tracing": {"sampleRatio": 1.5}}, "/tracing/sampleRatio"),
    ({"tls": {"clientCaKey": "a/b"}}, "/tls/clientCaKey"),
    ({"settings": {"grpc": {"key_file": "/k"}}}, "key_file"),
    ({"auth": {"tokensFileSecret": "Not_A_Name"}}, "/auth/tokensFileSecret"),
    ({"auth": {"tokensFileKey": "a/b"}}, "/auth/tokensFileKey"),
    ({"extraVolumes": [{"name": "tokens-file", "emptyDir": {}}]}, "/extraVolumes/0/name"),
    ({"extraVolumes": [{"name": "tls", "emptyDir": {}}]}, "/extraVolumes/0/name"),
]

WORKER_REFUSALS: list[tuple[Manifest, str]] = [
    ({"tag": ["pool=a"]}, "tag"),
    ({"tags": ["a,b"]}, "/tags/0"),
    ({"tags": [" a"]}, "/tags/0"),
    ({"tags": [""]}, "/tags/0"),
    ({"tags": ["a", "a"]}, "/tags"),
    ({"tags": ["a" * 129]}, "/tags/0"),
    ({"tags": [f"t{n}" for n in range(33)]}, "/tags"),
    ({"capacity": 0}, "/capacity"),
    ({"capacity": 10001}, "/capacity"),
    ({"capacity": 1.5}, "/capacity"),
    ({"server": "queue-operator"}, "/server"),
    ({"server": "http://queue-operator:50051"}, "/server"),
    ({"handlers": "handlers.py"}, "/handlers"),
    ({"graceSeconds": -1}, "/graceSeconds"),
    ({"graceMarginSeconds": 0}, "/graceMarginSeconds"),
    ({"token": {"expirationSeconds": 60}}, "/token/expirationSeconds"),
    ({"extraVolumes": [{"name": "token", "emptyDir": {}}]}, "/extraVolumes/0/name"),
    ({"image": {"tag": ""}}, "/image/tag"),
    ({"image": {"digest": "latest"}}, "/image/digest"),
    ({"podSecurityContext": {"fsGroup": "65532"}}, "/podSecurityContext/fsGroup"),
    ({"enabled": 1}, "/enabled"),
    ({"tls": {"caSecret": "Not_A_Name"}}, "/tls/caSecret"),
    ({"tls": {"ca": "x"}}, "ca"),
    ({"tracing": {"endpoint": "http://"}}, "/tracing/endpoint"),
    ({"extraVolumes": [{"name": "ca", "emptyDir": {}}]}, "/extraVolumes/0/name"),
]

CONTRADICTIONS: list[tuple[Manifest, str]] = [
    ({}, "No database is named"),
    ({"database": {"host": "db", "dsn": "postgresql://db"}}, "more than once"),
    ({"database": {"host": "db", "existingSecret": "mine"}}, "more than once"),
    ({"database": {"existingSecret": "a", "listenDsn": "host=b"}}, "would need a second Secret"),
    ({"database": {**DATABASE, "existingSecretListenKey": "b"}}, "which is not set"),
    ({"database": DATABASE, "auth": {"mode": "static"}}, "there are no tokens"),
    ({"database": DATABASE, "auth": {"tokensFileSecret": "a"}}, "does not ask for"),
    ({"database": DATABASE, "replicas": 2}, "Each of the replicas would serve"),
    ({"database": DATABASE, "tls": {"clientCaSecret": "ca"}}, "the server has none"),
    (
        {
            "database": DATABASE,
            "auth": {"mode": "static", "tokens": {"a": "b"}, "existingSecret": "x"},
        },
        "given twice",
    ),
    (
        {"database": DATABASE, "settings": {"metrics": {"linger_s": 18.5}}},
        "may take 42 seconds to stop",
    ),
    (
        {
            "database": DATABASE,
            "settings": {"metrics": {"linger_s": 100}},
            "terminationGracePeriodSeconds": 141,
        },
        "terminationGracePeriodSeconds, which is 141",
    ),
]


@pytest.mark.parametrize(("values", "field"), SERVER_REFUSALS)
def test_the_server_chart_names_the_faulty_value(values: Manifest, field: str) -> None:
    message = refusal("queue-operator", {"database": DATABASE, **values})
    assert "values don't meet the specifications of the schema" in message
    assert field in message


@pytest.mark.parametrize(("values", "field"), WORKER_REFUSALS)
def test_the_worker_chart_names_the_faulty_value(values: Manifest, field: str) -> None:
    message = refusal("queue-worker", values)
    assert "values don't meet the specifications of the schema" in message
    assert field in message


@pytest.mark.parametrize(("values", "words"), CONTRADICTIONS)
def test_contradictions_are_refused_with_what_to_do(values: Manifest, words: str) -> None:
    assert words in refusal("queue-operator", values)


@pytest.mark.parametrize(("linger_s", "grace_s"), [(18, 60), (100, 142), (0, 42)])
def test_a_pod_may_linger_for_as_long_as_it_has_time(linger_s: int, grace_s: int) -> None:
    values = {
        "database": DATABASE,
        "settings": {"metrics": {"linger_s": linger_s}},
        "terminationGracePeriodSeconds": grace_s,
    }
    assert rendered("queue-operator", values)


@pytest.mark.parametrize(
    ("tls", "words"),
    [
        ({"caConfigMap": "a", "caSecret": "b"}, "named twice"),
        ({"certificateSecret": "a"}, "for a connection with TLS"),
    ],
)
def test_contradictions_of_a_worker_are_refused_too(tls: Manifest, words: str) -> None:
    assert words in refusal("queue-worker", {"tls": tls})


@pytest.mark.parametrize(
    ("chart", "values"),
    [
        ("queue-operator", {"database": DATABASE, "settings": {"controller": {"resync_s": 0.5}}}),
        ("queue-operator", {"database": {"dsn": "host=/run/postgresql dbname=q"}}),
        (
            "queue-operator",
            {"database": DATABASE, "podDisruptionBudget": {"maxUnavailable": "50%"}},
        ),
        (
            "queue-operator",
            {
                "database": DATABASE,
                "replicas": 3,
                "strategy": {"type": "RollingUpdate"},
                "controller": {"enabled": False},
            },
        ),
        ("queue-operator", {"database": DATABASE, "global": {"from": "a parent chart"}}),
        ("queue-worker", {"server": "[fd00::1]:50051", "tags": ["größe=XL", "two words"]}),
        ("queue-worker", {"handlers": "shop.jobs.mail:worker", "replicas": None}),
    ],
)
def test_unusual_values_are_taken(chart: str, values: Manifest) -> None:
    assert rendered(chart, values)


@pytest.mark.parametrize(
    ("chart", "values"),
    [
        ("queue-operator", {"database": DATABASE}),
        (
            "queue-operator",
            {"database": {"existingSecret": "mine"}, "networkPolicy": {"enabled": True}},
        ),
        ("queue-worker", {}),
        ("queue-worker", {"tags": ["pool=a"], "networkPolicy": {"enabled": True}}),
    ],
)
def test_charts_are_clean_for_the_strict_linter(chart: str, values: Manifest) -> None:
    done = helm("lint", "--strict", str(CHARTS / chart), values=values)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 chart(s) linted, 0 chart(s) failed" in done.stdout
