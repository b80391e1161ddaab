"""The span that a caller is in, without anything of OpenTelemetry where nobody uses it."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from queue_operator.domain.batch import CheckedJobs
from queue_operator.domain.job import Job
from queue_operator.domain.traces import NO_TRACE, Trace, trace_of

_API: Final = "opentelemetry.trace"


def current() -> Trace:
    """The span that this code runs in. A program that has not imported OpenTelemetry is in none."""
    api = sys.modules.get(_API)
    if api is None:
        return NO_TRACE
    context = api.get_current_span().get_span_context()
    if not context.is_valid:
        return NO_TRACE
    parent = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
    # A program may keep more there than a job takes.
    return trace_of(parent, context.trace_state.to_header())


def headers() -> dict[str, str]:
    """The same for a request by HTTP; nothing where there is no span."""
    trace = current()
    named = {"traceparent": trace.parent, "tracestate": trace.state}
    return {name: text for name, text in named.items() if text}


def in_trace(jobs: Sequence[Job]) -> Sequence[Job]:
    """The jobs, those that belong to no trace as of the span that this code runs in."""
    trace = current()
    if not trace.parent or not isinstance(jobs, Sequence):
        return jobs
    made = [_put(job, trace) if isinstance(job, Job) else job for job in jobs]
    return CheckedJobs(made, jobs.limits) if isinstance(jobs, CheckedJobs) else made


def _put(job: Job, trace: Trace) -> Job:
    if job.traceparent:
        return job
    return replace(job, traceparent=trace.parent, tracestate=trace.state)
