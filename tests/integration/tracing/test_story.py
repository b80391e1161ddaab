"""One trace from a submission to its outcome, whichever way the job comes in."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from tests.integration.tracing.conftest import Stage
from tests.otlp import Collector, Span
from tests.waiting import DEADLINE_S

from queue_operator.backends.registry import open_backend
from queue_operator.client import QueueClient, Submission
from queue_operator.client.grpc import GrpcQueue
from queue_operator.domain.job import Job

_TRACE = "0af7651916cd43dd8448eb211c80319c"
_PARENT = f"00-{_TRACE}-b7ad6b7169203331-01"


@pytest.fixture
def caller() -> Iterator[trace.SpanContext]:
    """The test runs in a span of its own."""
    provider = TracerProvider(shutdown_on_exit=False)
    with provider.get_tracer("caller").start_as_current_span("caller") as span:
        yield span.get_span_context()


def _place(context: trace.SpanContext) -> tuple[str, str]:
    return f"{context.trace_id:032x}", f"{context.span_id:016x}"


def _operation(collector: Collector, job_id: str, kind: str) -> Span:
    return collector.await_span(messaging__message__id=job_id, messaging__operation__type=kind)


def _submitted(stage: Stage, kind: str, **options: Any) -> str:
    with QueueClient(stage.rest) as client:
        answer = client.submit(Submission(type=kind, payload=None, **options))
    assert answer.job_id is not None
    return answer.job_id


def _output(stage: Stage, job_id: str) -> Any:
    with QueueClient(stage.rest) as client:
        status = client.wait(job_id, timeout_s=DEADLINE_S)
        assert status.result is not None
        return status.result.output


def _logged(stage: Stage, job_id: str) -> list[str]:
    """Message and trace of the line that the worker logged of a job."""
    lines = map(json.loads, stage.worker_log.read_text().splitlines())
    about = next(line for line in lines if line.get("job_id") == job_id)
    return [about["message"], about["trace_id"]]


def test_a_submission_by_rest_goes_on_from_its_caller_to_the_outcome(
    stage: Stage, collector: Collector, caller: trace.SpanContext
) -> None:
    job_id = _submitted(stage, "thread", correlation_id="c-1")
    seen = _output(stage, job_id)
    sent = _operation(collector, job_id, "send")
    ran = _operation(collector, job_id, "process")
    settled = _operation(collector, job_id, "settle")
    assert (sent.trace_id, sent.parent_id) == _place(caller)
    assert (sent.name, sent.kind, sent.service) == ("send thread", "PRODUCER", "queue-operator")
    # A trace of its own, which leads to the submission.
    assert (ran.name, ran.kind, ran.service) == ("process thread", "CONSUMER", "mailer")
    assert (ran.parent_id, ran.links) == ("", [sent.place])
    assert ran.trace_id != sent.trace_id
    assert (settled.trace_id, settled.parent_id) == ran.place
    assert (settled.name, settled.kind) == ("settle thread", "CLIENT")
    assert settled.attributes["queue_operator.state"] == "completed"
    assert settled.attributes["messaging.operation.name"] == "complete"
    about = {
        "messaging.system": "queue_operator",
        "messaging.destination.name": "thread",
        "messaging.message.conversation_id": "c-1",
        "messaging.client.id": "w-1",
        "queue_operator.namespace": "default",
        "queue_operator.attempt": 1,
        "queue_operator.outcome": "completed",
    }
    assert about.items() <= ran.attributes.items()
    # What the handler records goes where the worker's spans go.
    assert seen["trace"] == ran.trace_id
    assert seen["given"].split("-")[1:3] == [*sent.place]
    work = collector.await_span(name="work", trace_id=ran.trace_id)
    assert work.parent_id == ran.span_id
    assert _logged(stage, job_id) == ["here I am", ran.trace_id]
    # Whoever looks at the job finds its trace.
    with QueueClient(stage.rest) as client:
        assert client.get(job_id).traceparent.split("-")[1:3] == [*sent.place]


@pytest.mark.parametrize("kind", ["async", "process"])
def test_a_child_is_linked_to_the_handler_that_spawned_it(
    stage: Stage, collector: Collector, kind: str
) -> None:
    job_id = _submitted(stage, kind)
    seen = _output(stage, job_id)
    ran = _operation(collector, job_id, "process")
    assert seen["trace"] == ran.trace_id
    child = _operation(collector, seen["child"], "process")
    assert child.links == [ran.place]


def test_a_failure_is_told_with_its_stack(stage: Stage, collector: Collector) -> None:
    job_id = _submitted(stage, "wrong")
    ran = _operation(collector, job_id, "process")
    assert (ran.failed, ran.events) == (True, ["exception"])
    assert ran.attributes["error.type"] == "NEVER"
    settled = _operation(collector, job_id, "settle")
    assert settled.attributes["queue_operator.state"] == "dead_letter"
    assert (settled.failed, settled.attributes["queue_operator.error_code"]) == (False, "NEVER")


def test_a_batch_is_one_span(stage: Stage, collector: Collector) -> None:
    jobs = [Submission(type="thread", payload=None) for _ in range(3)]
    with QueueClient(stage.rest) as client:
        ids = [one.job_id for one in client.submit_batch(jobs).results]
    runs = [_operation(collector, str(job_id), "process") for job_id in ids]
    [link] = {link for one in runs for link in one.links}
    sent = collector.await_place(link)
    assert sent.attributes["messaging.batch.message_count"] == 3
    assert "messaging.message.id" not in sent.attributes


@pytest.mark.parametrize("given", ["", "nonsense", "00-" + "0" * 32 + "-b7ad6b7169203331-01"])
def test_without_a_trace_that_means_something_one_begins(
    stage: Stage, collector: Collector, given: str
) -> None:
    answer = httpx.post(
        f"{stage.rest}/v1/jobs",
        json={"type": "thread", "payload": None},
        headers={"traceparent": given, "tracestate": "a=b"},
    )
    assert answer.status_code == 201
    sent = _operation(collector, answer.json()["job_id"], "send")
    assert sent.parent_id == ""


def test_what_the_caller_does_not_record_nobody_records(stage: Stage, collector: Collector) -> None:
    unsampled = _PARENT.removesuffix("01") + "00"
    ids = [
        httpx.post(
            f"{stage.rest}/v1/jobs",
            json={"type": "thread", "payload": None},
            headers={"traceparent": parent},
        ).json()["job_id"]
        for parent in (unsampled, _PARENT)
    ]
    # Both ran, and the second was told of after the first.
    assert _output(stage, ids[0])["trace"]
    assert _operation(collector, ids[1], "settle")
    assert collector.spans(messaging__message__id=ids[0]) == []


@pytest.mark.parametrize("several", [False, True], ids=["one", "several"])
async def test_a_submission_by_grpc_belongs_to_its_callers_trace(
    stage: Stage, collector: Collector, caller: trace.SpanContext, several: bool
) -> None:
    jobs = [Job(id=f"grpc-{several}-{n}", type="thread") for n in range(2)]
    async with GrpcQueue(stage.grpc) as queue:
        if several:
            await queue.enqueue_jobs(jobs)
        else:
            await queue.enqueue_job(jobs[0])
    ran = await asyncio.to_thread(_operation, collector, jobs[0].id, "process")
    [link] = ran.links
    sent = await asyncio.to_thread(collector.await_place, link)
    assert (sent.trace_id, sent.parent_id) == _place(caller)
    assert sent.attributes["queue_operator.door"] == "grpc"


async def test_submissions_of_several_traces_that_share_a_call_keep_theirs(
    stage: Stage, collector: Collector
) -> None:
    traces = [f"00-{n + 1:032x}-b7ad6b7169203331-01" for n in range(2)]
    jobs = [Job(id=f"several-{n}", type="thread", traceparent=one) for n, one in enumerate(traces)]
    async with GrpcQueue(stage.grpc) as queue:
        await queue.enqueue_jobs(jobs)
    places = [(f"{n + 1:032x}", "b7ad6b7169203331") for n in range(2)]
    for job, place in zip(jobs, places, strict=True):
        ran = await asyncio.to_thread(_operation, collector, job.id, "process")
        assert ran.links == [place]
    sent = await asyncio.to_thread(collector.await_links, places)
    assert sent.parent_id == ""


async def test_the_library_submits_within_the_programs_span(
    stage: Stage, collector: Collector, caller: trace.SpanContext
) -> None:
    store = await open_backend(stage.dsn)
    try:
        await store.enqueue_job(Job(id="library-1", type="thread"))
    finally:
        await store.close()
    ran = await asyncio.to_thread(_operation, collector, "library-1", "process")
    assert ran.links == [_place(caller)]
