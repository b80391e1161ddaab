"""Where spans go: a provider of OpenTelemetry, as its own variables configure it."""

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import (
    BatchSpanProcessor,
    ConsoleSpanExporter,
    SpanExporter,
)
from opentelemetry.sdk.trace.sampling import (
    Decision,
    ParentBased,
    Sampler,
    SamplingResult,
    TraceIdRatioBased,
)
from opentelemetry.trace import Link, SpanKind, TraceState, get_current_span
from opentelemetry.util.types import Attributes

from queue_operator import __version__

if TYPE_CHECKING:
    from queue_operator.tracing.opening import Options

logger = logging.getLogger(__name__)

_PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_CONSOLE: Final = "console"
_GRPC: Final = "grpc"
_EXPORTER_LOG: Final = "opentelemetry.exporter.otlp.proto.grpc.exporter"
_SAID_EVERY_S: Final = 60.0


def provider_of(options: "Options", variables: Mapping[str, str]) -> TracerProvider | None:
    """A new provider; None, after a warning, where spans should go in a way that is not there."""
    exporter = _exporter(options, variables)
    if exporter is None:
        return None
    provider = TracerProvider(
        sampler=_sampler(options, variables),
        resource=_resource(options, variables),
        # It has no bound, and a collector that is away must not keep a process from ending.
        shutdown_on_exit=False,
    )
    provider.add_span_processor(BatchSpanProcessor(exporter))
    logging.getLogger(_EXPORTER_LOG).addFilter(Seldom())
    return provider


def _exporter(options: "Options", variables: Mapping[str, str]) -> SpanExporter | None:
    kind = variables.get("OTEL_TRACES_EXPORTER", "").strip().lower() or "otlp"
    if kind == _CONSOLE:
        return ConsoleSpanExporter()
    if kind != "otlp":
        logger.warning("there are no traces: OTEL_TRACES_EXPORTER must be otlp, console or none")
        return None
    given = next((variables[name] for name in _PROTOCOLS if variables.get(name)), _GRPC)
    if given != _GRPC:
        logger.warning("there are no traces: OTLP goes by grpc here, not by %s", given)
        return None
    from_variables = any(variables.get(name) for name in _ENDPOINTS)
    return OTLPSpanExporter(endpoint=None if from_variables else options.endpoint or None)


def _sampler(options: "Options", variables: Mapping[str, str]) -> Sampler:
    if variables.get("OTEL_TRACES_SAMPLER"):
        # What a provider without a sampler takes.
        named: Sampler = TracerProvider(shutdown_on_exit=False).sampler
    else:
        named = ParentBased(TraceIdRatioBased(options.ratio))
    return Linked(named) if isinstance(named, ParentBased) else named


def _resource(options: "Options", variables: Mapping[str, str]) -> Resource:
    known = {SERVICE_VERSION: __version__, **options.attributes}
    named = variables.get("OTEL_SERVICE_NAME") or "service.name=" in variables.get(
        "OTEL_RESOURCE_ATTRIBUTES", ""
    )
    return Resource.create(known if named else known | {SERVICE_NAME: options.service})


class Linked(Sampler):
    """Keeps a trace of its own if the one that it is linked to is kept, as a parent would decide:
    a run is recorded where its submission was. Without a link, `named` decides.
    """

    def __init__(self, named: Sampler) -> None:
        self._named = named

    def should_sample(
        self,
        parent_context: Context | None,
        trace_id: int,
        name: str,
        kind: SpanKind | None = None,
        attributes: Attributes = None,
        links: Sequence[Link] | None = None,
        trace_state: TraceState | None = None,
    ) -> SamplingResult:
        within = get_current_span(parent_context).get_span_context().is_valid
        if links and not within:
            kept = any(link.context.trace_flags.sampled for link in links)
            return SamplingResult(
                Decision.RECORD_AND_SAMPLE if kept else Decision.DROP, attributes, trace_state
            )
        return self._named.should_sample(
            parent_context, trace_id, name, kind, attributes, links, trace_state
        )

    def get_description(self) -> str:
        return f"Linked{{{self._named.get_description()}}}"


class Seldom(logging.Filter):
    """One line a minute: a collector that is away is told of, and not with every batch."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._next = 0.0
        self._lock = threading.Lock()

    def filter(self, record: logging.LogRecord) -> bool:
        with self._lock:
            now = self._clock()
            if now < self._next:
                return False
            self._next = now + _SAID_EVERY_S
            return True
