"""The span that the jobs of a submission by gRPC belong to."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from queue_operator.domain.traces import NO_TRACE, Trace, trace_of
from queue_operator.rpc.door import Context
from queue_operator.tracing.batches import parent_and_links
from queue_operator.tracing.off import OFF
from queue_operator.tracing.protocol import Tracing
from queue_operator.wire.v1 import queue_pb2 as pb

_KEYS: Final = ("traceparent", "tracestate")


@contextmanager
def sending(tracing: Tracing, context: Context, jobs: Sequence[pb.Job]) -> Iterator[None]:
    """Around a submission: each job gets its span, from the message or the call's metadata."""
    given = _given(context)
    if tracing is OFF and not given.parent:
        yield
        return
    own = [trace_of(job.traceparent, job.tracestate) for job in jobs]
    parent, links = parent_and_links(own, given)
    with tracing.sending("grpc", parent, links) as under_way:
        for job, trace in zip(jobs, own, strict=True):
            job.traceparent, job.tracestate = under_way.trace(trace)
        under_way.about(jobs)
        yield


def _given(context: Context) -> Trace:
    said = {key: value for key, value in context.invocation_metadata() or () if key in _KEYS}
    if not said:
        return NO_TRACE
    return trace_of(*(str(said.get(key, "")) for key in _KEYS))
