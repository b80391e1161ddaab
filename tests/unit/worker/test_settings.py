from pathlib import Path
from typing import Any, cast

import pytest

from queue_operator.worker import InvalidSettings, WorkerSettings


def test_the_defaults() -> None:
    settings = WorkerSettings.from_environment({})
    assert (settings.server, settings.capacity, settings.grace_s) == ("localhost:50051", 10, 25.0)
    assert (settings.namespace, settings.tags) == ("default", frozenset())
    assert (settings.token_file, settings.ca_file, settings.health_port) == (None, None, 8081)
    assert settings.worker_name


def test_every_variable() -> None:
    settings = WorkerSettings.from_environment(
        {
            "QUEUE_OPERATOR_SERVER": "operator.queue:50051",
            "QUEUE_OPERATOR_TOKEN_FILE": "/run/token",
            "QUEUE_OPERATOR_CA_FILE": "/run/ca",
            "QUEUE_OPERATOR_CERT_FILE": "/run/cert",
            "QUEUE_OPERATOR_KEY_FILE": "/run/key",
            "QUEUE_OPERATOR_TAGS": "gpu, region=eu,,",
            "QUEUE_OPERATOR_CAPACITY": "3",
            "QUEUE_OPERATOR_NAMESPACE": "team-a",
            "QUEUE_OPERATOR_WORKER_NAME": "mine",
            "QUEUE_OPERATOR_GRACE_S": "1.5",
            "QUEUE_OPERATOR_HEALTH_PORT": "0",
            "POD_NAME": "pod-1",
            "POD_UID": "uid-1",
            "NODE_NAME": "node-1",
        }
    )
    assert settings.server == "operator.queue:50051"
    assert (settings.token_file, settings.ca_file) == (Path("/run/token"), Path("/run/ca"))
    assert (settings.cert_file, settings.key_file) == (Path("/run/cert"), Path("/run/key"))
    assert settings.tags == {"gpu", "region=eu"}
    assert (settings.capacity, settings.namespace, settings.worker_name) == (3, "team-a", "mine")
    assert (settings.grace_s, settings.health_port) == (1.5, 0)
    assert (settings.pod_uid, settings.host) == ("uid-1", "node-1")


def test_the_pod_names_the_worker() -> None:
    settings = WorkerSettings.from_environment({"POD_NAME": "pod-1", "POD_NAMESPACE": "ns"})
    assert (settings.worker_name, settings.namespace) == ("pod-1", "ns")


def test_every_fault_is_reported_at_once() -> None:
    with pytest.raises(InvalidSettings) as caught:
        WorkerSettings.from_environment(
            {
                "QUEUE_OPERATOR_SERVER": "nowhere",
                "QUEUE_OPERATOR_CAPACITY": "0",
                "QUEUE_OPERATOR_HEALTH_PORT": "70000",
                "QUEUE_OPERATOR_GRACE_S": "-1",
                "QUEUE_OPERATOR_TAGS": "x" * 129,
            }
        )
    faults = str(caught.value)
    for name in ("SERVER", "CAPACITY", "HEALTH_PORT", "GRACE_S", "TAGS"):
        assert f"QUEUE_OPERATOR_{name}" in faults


@pytest.mark.parametrize("given", [("CERT",), ("KEY",), ("CERT", "CA"), ("CERT", "KEY")])
def test_half_a_certificate_is_a_fault(given: tuple[str, ...]) -> None:
    variables = {f"QUEUE_OPERATOR_{name}_FILE": "/run/file" for name in given}
    with pytest.raises(InvalidSettings, match="CERT_FILE"):
        WorkerSettings.from_environment(variables)


@pytest.mark.parametrize(
    "text",
    ['["gpu", "region=eu"]', '{"gpu": "", "region": "eu"}', "gpu, region=eu", "region=eu,gpu"],
)
def test_tags_are_a_list_of_words_or_json(text: str) -> None:
    settings = WorkerSettings.from_environment({"QUEUE_OPERATOR_TAGS": text})
    assert settings.tags == {"gpu", "region=eu"}


@pytest.mark.parametrize("text", ["{gpu}", '["gpu", 5]', '{"gpu": true}', '["gpu"', '{"a=b": "c"}'])
def test_json_that_is_no_tags_is_a_fault(text: str) -> None:
    with pytest.raises(InvalidSettings, match="QUEUE_OPERATOR_TAGS: "):
        WorkerSettings.from_environment({"QUEUE_OPERATOR_TAGS": text})


def test_a_variable_that_looks_like_one_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    WorkerSettings.from_environment(
        {
            "QUEUE_OPERATOR_CAPACTY": "5",
            "QUEUE_OPERATOR_GRACE": "5",
            "QUEUE_OPERATOR_TOKEN": "of the REST client",
            "QUEUE_OPERATOR_URL": "http://queue",
            "QUEUE_OPERATOR_SERVICE_PORT": "8080",
            "QUEUE_OPERATOR_GRPC__PORT": "1",
            "CAPACTY": "5",
        }
    )
    assert [record.getMessage() for record in caplog.records] == [
        "QUEUE_OPERATOR_CAPACTY is no setting of a worker; did you mean QUEUE_OPERATOR_CAPACITY?",
        "QUEUE_OPERATOR_GRACE is no setting of a worker; did you mean QUEUE_OPERATOR_GRACE_S?",
    ]


def test_what_is_not_a_number_names_its_variable() -> None:
    with pytest.raises(InvalidSettings, match="QUEUE_OPERATOR_CAPACITY: 'many' is not a number"):
        WorkerSettings.from_environment({"QUEUE_OPERATOR_CAPACITY": "many"})


@pytest.mark.parametrize("server", ["http://localhost:50051", "localhost", "localhost:grpc"])
def test_a_server_is_a_host_and_a_port(server: str) -> None:
    with pytest.raises(InvalidSettings, match="must be host:port, as in localhost:50051"):
        WorkerSettings(server=server)


@pytest.mark.parametrize(
    ("field", "variable"),
    [
        ("worker_name", "QUEUE_OPERATOR_WORKER_NAME"),
        ("namespace", "QUEUE_OPERATOR_NAMESPACE"),
        ("host", "NODE_NAME"),
        ("pod_uid", "POD_UID"),
        ("server", "QUEUE_OPERATOR_SERVER"),
    ],
)
def test_bytes_that_are_no_text_are_a_fault_of_their_variable(field: str, variable: str) -> None:
    """What the environment holds as the byte ff, the hello could not."""
    with pytest.raises(InvalidSettings, match=f"{variable}.*: must not contain .* surrogates"):
        WorkerSettings.from_environment({variable: "node-\udcff:1"})
    with pytest.raises(InvalidSettings, match="surrogates"):
        WorkerSettings(**cast(Any, {field: "node-\udcff:1"}))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("capacity", 1.5),
        ("capacity", True),
        ("capacity", "7"),
        ("capacity", 10_001),
        ("health_port", 80.5),
        ("metrics_port", 70_000),
        ("capture_logs", "loud"),
        ("metrics_port", "9091"),
        ("grace_s", "5"),
        ("grace_s", True),
        ("close_s", float("nan")),
    ],
)
def test_a_number_of_another_kind_is_a_fault(field: str, value: object) -> None:
    with pytest.raises(InvalidSettings, match=f"QUEUE_OPERATOR_{field.upper()}: "):
        WorkerSettings(**cast(Any, {field: value}))
