"""When there are traces, and where they go."""

import logging
import subprocess
import sys
from collections.abc import Iterator, Mapping

import pytest
from opentelemetry.sdk.resources import SERVICE_NAME
from opentelemetry.sdk.trace import TracerProvider

from queue_operator.tracing.exporting import provider_of
from queue_operator.tracing.off import OFF
from queue_operator.tracing.opening import Options, open_tracing
from queue_operator.tracing.protocol import Tracing

ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}


@pytest.fixture
def opened() -> Iterator[list[Tracing]]:
    tracings: list[Tracing] = []
    yield tracings
    for one in tracings:
        one.close(5.0)


@pytest.mark.parametrize(
    ("options", "variables", "on"),
    [
        (Options(service="s"), {}, False),
        (Options(service="s", endpoint="http://127.0.0.1:1"), {}, True),
        (Options(service="s"), ENDPOINT, True),
        (Options(service="s"), {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:1"}, True),
        (Options(service="s"), {"OTEL_TRACES_EXPORTER": "console"}, True),
        (Options(service="s"), ENDPOINT | {"OTEL_TRACES_EXPORTER": "none"}, False),
        (Options(service="s"), ENDPOINT | {"OTEL_SDK_DISABLED": "true"}, False),
        (Options(service="s"), {"OTEL_SERVICE_NAME": "x"}, False),
    ],
)
def test_they_are_on_where_something_says_where_they_go(
    opened: list[Tracing], options: Options, variables: Mapping[str, str], on: bool
) -> None:
    opened.append(open_tracing(options, variables))
    assert (opened[0] is not OFF) is on


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, "OTLP goes by grpc here"),
        ({"OTEL_TRACES_EXPORTER": "zipkin"}, "must be otlp, console or none"),
    ],
)
def test_a_way_that_is_not_there_is_told_and_stops_nobody(
    caplog: pytest.LogCaptureFixture, variables: Mapping[str, str], said: str
) -> None:
    with caplog.at_level(logging.WARNING):
        assert open_tracing(Options(service="s"), {**ENDPOINT, **variables}) is OFF
    assert said in caplog.text


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "soon"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "zip"),
        ("OTEL_BSP_SCHEDULE_DELAY", "-5"),
        ("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "many"),
    ],
)
def test_a_variable_that_means_nothing_is_named_and_stops_nobody(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    with caplog.at_level(logging.WARNING):
        options = Options(service="s", endpoint="http://127.0.0.1:1")
        assert open_tracing(options, {name: value}) is OFF
    assert "there are no traces" in caplog.text
    assert name in caplog.text


def test_without_the_package_it_is_told_and_stops_nobody() -> None:
    program = (
        "import logging, sys; logging.basicConfig(); sys.modules['opentelemetry'] = None;"
        "from queue_operator.tracing.off import OFF;"
        "from queue_operator.tracing.opening import Options, open_tracing;"
        "assert open_tracing(Options(service='s', endpoint='http://a:1')) is OFF"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert "install queue-operator[tracing]" in done.stderr


def test_a_program_that_has_a_provider_of_its_own_gets_the_spans() -> None:
    program = (
        "from opentelemetry import trace; from opentelemetry.sdk.trace import TracerProvider;"
        "from opentelemetry.sdk.trace.export import SimpleSpanProcessor;"
        "from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter;"
        "kept = InMemorySpanExporter(); provider = TracerProvider();"
        "provider.add_span_processor(SimpleSpanProcessor(kept));"
        "trace.set_tracer_provider(provider);"
        "from queue_operator.tracing.opening import Options, open_tracing;"
        "tracing = open_tracing(Options(service='s'), {});"
        "tracing.beginning('resource').stored();"
        "tracing.close(1.0);"
        "assert [span.name for span in kept.get_finished_spans()] == ['send']"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def _provider(options: Options, variables: Mapping[str, str]) -> TracerProvider:
    provider = provider_of(options, {"OTEL_TRACES_EXPORTER": "console"} | dict(variables))
    assert provider is not None
    return provider


@pytest.mark.parametrize(
    ("variables", "named"),
    [
        ({}, "s"),
        ({"OTEL_SERVICE_NAME": "mine"}, "mine"),
        ({"OTEL_RESOURCE_ATTRIBUTES": "service.name=mine,a=b"}, "mine"),
    ],
)
def test_the_variables_name_the_service(
    monkeypatch: pytest.MonkeyPatch, variables: Mapping[str, str], named: str
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    provider = _provider(Options(service="s", attributes={"k": "v"}), variables)
    assert provider.resource.attributes[SERVICE_NAME] == named
    assert provider.resource.attributes["k"] == "v"
    provider.shutdown()


@pytest.mark.parametrize(
    ("variables", "described"),
    [
        ({}, "Linked{ParentBased{root:TraceIdRatioBased{0.25}"),
        ({"OTEL_TRACES_SAMPLER": "parentbased_always_off"}, "Linked{ParentBased{root:AlwaysOff"),
        ({"OTEL_TRACES_SAMPLER": "always_off"}, "AlwaysOff"),
    ],
)
def test_the_variables_decide_what_is_recorded(
    monkeypatch: pytest.MonkeyPatch, variables: Mapping[str, str], described: str
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    provider = _provider(Options(service="s", ratio=0.25), variables)
    assert provider.sampler.get_description().startswith(described)
    provider.shutdown()
