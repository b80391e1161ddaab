"""Spans of OpenTelemetry, in the words of its conventions for messaging."""

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from opentelemetry import trace as api
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, Status, StatusCode, TraceFlags
from opentelemetry.trace.span import TraceState

from queue_operator import __version__
from queue_operator.domain.errors import QueueError
from queue_operator.domain.outcome import ErrorInfo
from queue_operator.domain.traces import NO_TRACE, Trace
from queue_operator.observing import TRACE_ID
from queue_operator.tracing.protocol import Attempt, Sent

if TYPE_CHECKING:
    from queue_operator.tracing.opening import Options

_SCOPE: Final = "queue_operator"
_MOST_LINKS: Final = 128
"""What OpenTelemetry keeps of one span."""
STOPPED: Final = "stopped"


def open_recorder(options: "Options", variables: Mapping[str, str]) -> "Recorder | None":
    """Of a new provider; None, after a warning, where there can be none."""
    from queue_operator.tracing.exporting import provider_of

    provider = provider_of(options, variables)
    if provider is None:
        return None
    if options.shared:
        api.set_tracer_provider(provider)
    return Recorder(provider, stop=provider.shutdown)


class Recorder:
    """A `protocol.Tracing`. `stop` ends a provider that is this recorder's own."""

    def __init__(self, provider: api.TracerProvider, stop: Any = None) -> None:
        self._tracer = provider.get_tracer(_SCOPE, __version__)
        self._stop = stop

    @contextmanager
    def sending(
        self, door: str, given: Trace = NO_TRACE, links: Iterable[Trace] = ()
    ) -> Iterator["_Sending"]:
        span = self._send(door, given, links)
        with _in_span(span):
            try:
                yield _Sending(span, given)
            except BaseException as error:
                _failed(span, _code_of(error), str(error))
                raise

    def beginning(self, door: str, given: Trace = NO_TRACE) -> "_Sending":
        return _Sending(self._send(door, given), given)

    def _send(self, door: str, given: Trace, links: Iterable[Trace] = ()) -> Span:
        return self._tracer.start_span(
            "send",
            context=_within(given),
            kind=SpanKind.PRODUCER,
            links=_links(links),
            attributes=_named("send", "send") | {"queue_operator.door": door},
        )

    @contextmanager
    def running(self, attempt: Attempt) -> Iterator["_Running"]:
        span = self._tracer.start_span(
            f"process {attempt.type}",
            # A trace of its own: a run may be days after its submission, and there may be many.
            context=Context(),
            kind=SpanKind.CONSUMER,
            links=_links([attempt.trace]),
            attributes=_named("process", "process") | _of(attempt),
        )
        with _in_span(span):
            running = _Running(span)
            try:
                yield running
            finally:
                running.left()

    def settling(
        self, attempt: Attempt, of: Trace, outcome: str, error_code: str = ""
    ) -> "_Settling":
        span = self._tracer.start_span(
            f"settle {attempt.type}",
            context=_within(of),
            kind=SpanKind.CLIENT,
            attributes=_named("settle", outcome) | _of(attempt),
        )
        if error_code:
            span.set_attribute("queue_operator.error_code", error_code)
        return _Settling(span)

    def close(self, timeout_s: float) -> None:
        if self._stop is not None:
            # It waits for half a minute where nobody answers.
            ending = threading.Thread(target=self._stop, name="end-of-traces", daemon=True)
            ending.start()
            ending.join(timeout_s)


@contextmanager
def _in_span(span: Span) -> Iterator[None]:
    """Until the span ends here, what is logged names its trace."""
    before = TRACE_ID.set(f"{span.get_span_context().trace_id:032x}")
    try:
        with api.use_span(
            span, end_on_exit=True, record_exception=False, set_status_on_exception=False
        ):
            yield
    finally:
        TRACE_ID.reset(before)


class _Sending:
    def __init__(self, span: Span, given: Trace) -> None:
        self._span = span
        self._given = given
        self._trace = _trace_of(span)

    def trace(self, own: Trace = NO_TRACE) -> Trace:
        """A job of another trace stays there, and the span is linked to it."""
        return own if own.parent and own.parent != self._given.parent else self._trace

    def about(self, jobs: Sequence[Sent]) -> None:
        if not self._span.is_recording() or not jobs:
            return
        types = {job.type for job in jobs}
        if len(types) == 1:
            [one] = types
            self._span.update_name(f"send {one}")
            self._span.set_attribute("messaging.destination.name", one)
        namespaces = {job.namespace for job in jobs}
        if len(namespaces) == 1 and "" not in namespaces:
            self._span.set_attribute("queue_operator.namespace", namespaces.pop())
        if len(jobs) == 1:
            self._span.set_attribute("messaging.message.id", jobs[0].id)
        else:
            self._span.set_attribute("messaging.batch.message_count", len(jobs))

    def stored(self) -> None:
        self._span.end()


class _Running:
    def __init__(self, span: Span) -> None:
        self._span = span
        self._told = False
        self.trace = _trace_of(span)

    def ended(self, outcome: str, error: ErrorInfo | None = None) -> None:
        self._told = True
        self._span.set_attribute("queue_operator.outcome", outcome)
        if error is None:
            return
        _failed(self._span, error.code or error.category.value.lower(), error.message)
        about = {
            "exception.type": error.code,
            "exception.message": error.message,
            "exception.stacktrace": error.stack_trace,
        }
        self._span.add_event("exception", {name: text for name, text in about.items() if text})

    def left(self) -> None:
        if not self._told:
            self.ended(STOPPED)


class _Settling:
    def __init__(self, span: Span) -> None:
        self._span = span

    def answered(self, state: str, error_code: str = "") -> None:
        if state:
            self._span.set_attribute("queue_operator.state", state.lower())
        if error_code:
            _failed(self._span, error_code, "the outcome was refused")
        self._span.end()


def _named(operation: str, name: str) -> dict[str, str | int]:
    return {
        "messaging.system": "queue_operator",
        "messaging.operation.type": operation,
        "messaging.operation.name": name,
    }


def _of(attempt: Attempt) -> dict[str, str | int]:
    about: dict[str, str | int] = {
        "messaging.destination.name": attempt.type,
        "messaging.message.id": attempt.job_id,
        "messaging.client.id": attempt.worker,
        "queue_operator.namespace": attempt.namespace,
        "queue_operator.attempt": attempt.number,
    }
    if attempt.correlation_id:
        about["messaging.message.conversation_id"] = attempt.correlation_id
    return about


def _failed(span: Span, code: str, message: str) -> None:
    span.set_attribute("error.type", code)
    span.set_status(Status(StatusCode.ERROR, message))


def _code_of(error: BaseException) -> str:
    return error.code if isinstance(error, QueueError) else type(error).__name__


def _links(traces: Iterable[Trace]) -> list[Link]:
    found = (_context_of(trace) for trace in traces)
    return [Link(context) for context in islice(filter(None, found), _MOST_LINKS)]


def _within(trace: Trace) -> Context:
    """Of the caller's span, or the beginning of a trace."""
    context = _context_of(trace)
    if context is None:
        return Context()
    return api.set_span_in_context(api.NonRecordingSpan(context), Context())


def _context_of(trace: Trace) -> SpanContext | None:
    if not trace.parent:
        return None
    _, trace_id, span_id, flags = trace.parent.split("-")
    return SpanContext(
        int(trace_id, 16),
        int(span_id, 16),
        is_remote=True,
        trace_flags=TraceFlags(int(flags, 16)),
        trace_state=TraceState.from_header([trace.state]) if trace.state else None,
    )


def _trace_of(span: Span) -> Trace:
    context = span.get_span_context()
    parent = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
    return Trace(parent, context.trace_state.to_header())


@contextmanager
def within(trace: Trace) -> Iterator[None]:
    """Code of another process that goes on from a span."""
    context = _context_of(trace)
    if context is None:
        yield
        return
    with api.use_span(api.NonRecordingSpan(context)):
        yield
