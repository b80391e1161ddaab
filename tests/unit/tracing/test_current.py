"""The span of the caller, and what it costs where there is none."""

import subprocess
import sys
from collections.abc import Iterator

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace.span import TraceState

from queue_operator.domain.batch import CheckedJobs
from queue_operator.domain.job import Job
from queue_operator.domain.limits import DEFAULT_LIMITS
from queue_operator.domain.traces import NO_TRACE, check_trace, trace_id
from queue_operator.tracing.current import current, headers, in_trace

OTHER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def span() -> Iterator[trace.SpanContext]:
    provider = TracerProvider(shutdown_on_exit=False)
    with provider.get_tracer("t").start_as_current_span("caller") as made:
        yield made.get_span_context()


def test_outside_of_every_span_there_is_none() -> None:
    jobs = [Job(id="a", type="t")]
    assert current() == NO_TRACE
    assert headers() == {}
    assert in_trace(jobs) is jobs


def test_the_span_is_written_as_w3c_says(span: trace.SpanContext) -> None:
    parent = f"00-{span.trace_id:032x}-{span.span_id:016x}-{span.trace_flags:02x}"
    assert current().parent == parent
    assert headers() == {"traceparent": parent}


def test_a_program_may_keep_more_in_its_trace_than_a_job_takes() -> None:
    state = TraceState([(f"v{n}", "x" * 100) for n in range(10)])
    caller = trace.SpanContext(1, 2, False, trace.TraceFlags(1), state)
    with trace.use_span(trace.NonRecordingSpan(caller)):
        [job] = in_trace([Job(id="a", type="t")])
    check_trace(job.traceparent, job.tracestate)
    assert trace_id(job.traceparent) == f"{1:032x}"


def test_jobs_without_a_trace_of_their_own_belong_to_the_callers(span: trace.SpanContext) -> None:
    jobs = CheckedJobs(
        (Job(id="a", type="t"), Job(id="b", type="t", traceparent=OTHER)), DEFAULT_LIMITS
    )
    made = in_trace(jobs)
    assert [job.traceparent for job in made] == [current().parent, OTHER]
    # Nobody has to look at them again.
    assert isinstance(made, CheckedJobs)


def test_what_is_no_sequence_of_jobs_is_for_others_to_refuse(span: trace.SpanContext) -> None:
    strange = ["x", Job(id="a", type="t")]
    assert in_trace(strange)[0] == "x"  # type: ignore[comparison-overlap, arg-type]
    assert in_trace(7) == 7  # type: ignore[comparison-overlap, arg-type]


def test_who_does_not_use_opentelemetry_does_not_import_it() -> None:
    program = (
        "import asyncio, sys; from queue_operator.backends.registry import open_backend;"
        "import queue_operator.client, queue_operator.worker.process;"
        "from queue_operator.domain.job import Job;"
        "store = asyncio.run(open_backend('memory://'));"
        "asyncio.run(store.enqueue_job(Job(id='a', type='t')));"
        "assert not [name for name in sys.modules if name.startswith('opentelemetry')]"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
