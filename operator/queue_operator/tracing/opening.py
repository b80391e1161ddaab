"""Whether there are traces, as the settings or the variables of OpenTelemetry say."""

import logging
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from queue_operator.tracing.off import OFF
from queue_operator.tracing.protocol import Tracing

logger = logging.getLogger(__name__)

_API: Final = "opentelemetry.trace"
_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_EXPORTER: Final = "OTEL_TRACES_EXPORTER"
_DISABLED: Final = "OTEL_SDK_DISABLED"
_NONE: Final = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """`service` is what this process is called unless `OTEL_SERVICE_NAME` says otherwise,
    `endpoint` where spans go unless the variables of OpenTelemetry say so, `ratio` the part of new
    traces that is kept unless `OTEL_TRACES_SAMPLER` decides. With `shared`, what handlers record
    goes there too.
    """

    service: str
    endpoint: str = ""
    ratio: float = 1.0
    attributes: Mapping[str, str] = field(default_factory=dict)
    shared: bool = False


def open_tracing(options: Options, environment: Mapping[str, str] | None = None) -> Tracing:
    """Traces, if anything asks for them: an endpoint, the variables of OpenTelemetry, or a provider
    of the program's own, which then gets the spans. Else nothing of OpenTelemetry is imported.
    """
    variables = os.environ if environment is None else environment
    if variables.get(_DISABLED, "").strip().lower() == "true":
        return OFF
    provider = _provider_of_the_program()
    if provider is None and not _is_wanted(options, variables):
        return OFF
    try:
        from queue_operator.tracing import recording
    except ImportError as error:
        logger.warning(
            "there are no traces, although they are asked for: %s; install queue-operator[tracing]",
            error,
        )
        return OFF
    if provider is not None:
        return recording.Recorder(provider)
    try:
        return recording.open_recorder(options, variables) or OFF
    except Exception as error:
        # OpenTelemetry raises what it likes for a variable that it cannot read, of which it does
        # not always say the name. A queue without traces is better than none.
        given = ", ".join(sorted(name for name in variables if name.startswith("OTEL_")))
        logger.warning(
            "there are no traces, although they are asked for: %s; look at %s",
            error,
            given or "the endpoint",
        )
        return OFF


def _provider_of_the_program() -> Any:
    """What the program itself has made for its spans, if anything. Others import the interface of
    OpenTelemetry too, and need not have one.
    """
    api = sys.modules.get(_API)
    if api is None:
        return None
    provider = api.get_tracer_provider()
    lacking = isinstance(provider, api.ProxyTracerProvider | api.NoOpTracerProvider)
    return None if lacking else provider


def _is_wanted(options: Options, variables: Mapping[str, str]) -> bool:
    exporter = variables.get(_EXPORTER, "").strip().lower()
    if exporter == _NONE:
        return False
    return bool(exporter or options.endpoint or any(variables.get(name) for name in _ENDPOINTS))
