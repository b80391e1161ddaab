"""Spans as they are recorded."""

import logging

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

from queue_operator.controller.traced import TakingIn
from queue_operator.domain.errors import JobNotFound
from queue_operator.domain.job import Job
from queue_operator.domain.traces import Trace
from queue_operator.observing import TRACE_ID
from queue_operator.tracing.batches import parent_and_links
from queue_operator.tracing.exporting import Linked, Seldom
from queue_operator.tracing.protocol import Attempt
from queue_operator.tracing.recording import STOPPED, Recorder

GIVEN = Trace("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "a=b")
UNSAMPLED = Trace(GIVEN.parent[:-1] + "0")
OTHER = Trace(f"00-{7:032x}-{7:016x}-01")
ATTEMPT = Attempt(job_id="j", type="t", namespace="n", number=2, worker="w", trace=GIVEN)


class Kept:
    """A recorder, and what it has recorded."""

    def __init__(self, ratio: float) -> None:
        self._exporter = InMemorySpanExporter()
        sampler = Linked(ParentBased(TraceIdRatioBased(ratio)))
        provider = TracerProvider(sampler=sampler, shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.recorder = Recorder(provider)

    @property
    def names(self) -> list[str]:
        return [span.name for span in self._exporter.get_finished_spans()]

    def attribute(self, name: str) -> object:
        [span] = self._exporter.get_finished_spans()
        return (span.attributes or {}).get(name)


@pytest.fixture
def kept() -> Kept:
    return Kept(1.0)


def test_a_submission_is_in_its_callers_trace_with_the_vendors_state(kept: Kept) -> None:
    with kept.recorder.sending("rest", GIVEN) as sending:
        trace = sending.trace()
        assert TRACE_ID.get() == GIVEN.id
    assert TRACE_ID.get() == ""
    assert (trace.id, trace.state) == (GIVEN.id, GIVEN.state)
    assert trace.parent != GIVEN.parent


def test_a_job_of_another_trace_stays_in_it(kept: Kept) -> None:
    with kept.recorder.sending("grpc", GIVEN, [OTHER]) as sending:
        assert sending.trace(OTHER) == OTHER
        assert sending.trace(GIVEN) == sending.trace()


def test_a_refusal_is_named(kept: Kept) -> None:
    with pytest.raises(JobNotFound), kept.recorder.sending("rest"):
        raise JobNotFound("j", "n")
    assert kept.attribute("error.type") == "NOT_FOUND"


def test_a_run_that_nobody_tells_of_was_stopped(kept: Kept) -> None:
    with kept.recorder.running(ATTEMPT):
        pass
    assert kept.attribute("queue_operator.outcome") == STOPPED


@pytest.mark.parametrize("ratio", [0.0, 1.0])
@pytest.mark.parametrize(("trace", "recorded"), [(GIVEN, True), (UNSAMPLED, False)])
def test_a_run_is_recorded_where_its_submission_was(
    ratio: float, trace: Trace, recorded: bool
) -> None:
    kept = Kept(ratio)
    attempt = Attempt(job_id="j", type="t", namespace="n", number=1, worker="w", trace=trace)
    with kept.recorder.running(attempt) as running:
        # Handlers are in a span, whether it is recorded or not.
        assert running.trace.parent
    kept.recorder.settling(attempt, running.trace, "complete").answered("COMPLETED")
    assert kept.names == (["process t", "settle t"] if recorded else [])


@pytest.mark.parametrize("ratio", [0.0, 1.0])
def test_without_a_submissions_trace_the_ratio_decides(ratio: float) -> None:
    kept = Kept(ratio)
    with kept.recorder.running(Attempt(job_id="j", type="t", namespace="n", number=1, worker="w")):
        pass
    with kept.recorder.sending("rest"):
        pass
    assert len(kept.names) == 2 * ratio


def test_of_resources_only_those_that_are_new_are_recorded(kept: Kept) -> None:
    jobs = {
        "a": Job(id="a", type="t", traceparent=GIVEN.parent, tracestate=GIVEN.state),
        "b": Job(id="b", type="t"),
    }
    taking_in = TakingIn(kept.recorder, jobs)
    first, second = taking_in.jobs
    assert Trace(first.traceparent).id == GIVEN.id
    assert first.traceparent != GIVEN.parent
    assert Trace(second.traceparent).id not in ("", GIVEN.id)
    taking_in.stored(["a", "of another batch"])
    assert kept.names == ["send t"]
    assert kept.attribute("messaging.message.id") == "a"


def test_one_trace_that_all_jobs_share_is_the_calls() -> None:
    none = Trace()
    assert parent_and_links([GIVEN, none, GIVEN]) == (GIVEN, ())
    assert parent_and_links([GIVEN, OTHER]) == (none, [GIVEN, OTHER])
    assert parent_and_links([GIVEN, OTHER], GIVEN) == (GIVEN, [OTHER])
    assert parent_and_links([none]) == (none, [])


def test_a_collector_that_is_away_is_told_of_once_a_minute() -> None:
    now = 0.0
    seldom = Seldom(lambda: now)
    line = logging.LogRecord("l", logging.ERROR, "p", 1, "m", (), None)
    assert [seldom.filter(line), seldom.filter(line)] == [True, False]
    now = 60.0
    assert seldom.filter(line) is True
