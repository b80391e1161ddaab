"""A collector of spans, as OTLP by gRPC knows it, that tests ask what it was sent."""

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as pb
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as rpc
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span as WireSpan
from opentelemetry.proto.trace.v1.trace_pb2 import Status
from tests.waiting import DEADLINE_S


@dataclass(frozen=True, slots=True)
class Span:
    """One that was sent. Ids are hex digits; `links` are (trace, span)."""

    name: str
    kind: str
    trace_id: str
    span_id: str
    parent_id: str
    service: str
    failed: bool
    links: list[tuple[str, str]] = field(default_factory=list)
    attributes: dict[str, Any] = field(default_factory=dict)
    events: list[str] = field(default_factory=list)

    @property
    def place(self) -> tuple[str, str]:
        return self.trace_id, self.span_id


class Collector(rpc.TraceServiceServicer):
    """Keeps all spans; `address` is what to configure."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._spans: list[Span] = []
        self._news = threading.Condition()

    def Export(
        self, request: pb.ExportTraceServiceRequest, context: grpc.ServicerContext
    ) -> pb.ExportTraceServiceResponse:
        with self._news:
            self._spans += _spans_of(request)
            self._news.notify_all()
        return pb.ExportTraceServiceResponse()

    def spans(self, **attributes: Any) -> list[Span]:
        """Those with these attributes, in which `__` stands for a dot; `name` and `trace_id` are
        the span's own.
        """
        wanted = {key.replace("__", "."): value for key, value in attributes.items()}
        with self._news:
            return [one for one in self._spans if _has(one, wanted)]

    def await_span(self, **attributes: Any) -> Span:
        """The first such span, once it is there."""
        return self._await(lambda: self.spans(**attributes), str(attributes))

    def await_place(self, place: tuple[str, str]) -> Span:
        """The span of a trace with this id."""
        return self._await(lambda: [s for s in self.spans() if s.place == place], str(place))

    def await_links(self, places: Iterable[tuple[str, str]]) -> Span:
        """The first span that is linked to just these."""
        wanted = set(places)
        return self._await(lambda: [s for s in self.spans() if {*s.links} == wanted], str(wanted))

    def _await(self, ask: Callable[[], list[Span]], what: str) -> Span:
        with self._news:
            came = self._news.wait_for(ask, DEADLINE_S)
            names = sorted({one.name for one in self._spans})
            assert came, f"{what} did not come; there are {names}"
            return came[0]


def _has(span: Span, wanted: dict[str, Any]) -> bool:
    known = span.attributes | {"name": span.name, "trace_id": span.trace_id}
    return all(known.get(key) == value for key, value in wanted.items())


def _spans_of(request: pb.ExportTraceServiceRequest) -> Iterator[Span]:
    for resource in request.resource_spans:
        service = _attributes(resource.resource.attributes).get("service.name", "")
        for scope in resource.scope_spans:
            for span in scope.spans:
                yield _span_of(span, str(service))


def _span_of(span: WireSpan, service: str) -> Span:
    return Span(
        name=span.name,
        kind=WireSpan.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_"),
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex(),
        service=service,
        failed=span.status.code == Status.STATUS_CODE_ERROR,
        links=[(link.trace_id.hex(), link.span_id.hex()) for link in span.links],
        attributes=_attributes(span.attributes),
        events=[event.name for event in span.events],
    )


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: _value(pair) for pair in pairs}


def _value(pair: KeyValue) -> Any:
    kind = AnyValue.WhichOneof(pair.value, "value")
    return getattr(pair.value, kind) if kind else None


@contextmanager
def collecting() -> Iterator[Collector]:
    """A collector that runs."""
    server = grpc.server(ThreadPoolExecutor(4))
    port = server.add_insecure_port("127.0.0.1:0")
    collector = Collector(f"http://127.0.0.1:{port}")
    rpc.add_TraceServiceServicer_to_server(collector, server)  # type: ignore[no-untyped-call]
    server.start()
    try:
        yield collector
    finally:
        server.stop(None).wait()
