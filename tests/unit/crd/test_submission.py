from datetime import UTC, datetime
from typing import Any

import pytest

from queue_operator.crd.submission import cancel_requested, to_job
from queue_operator.domain.callbacks import check_callback_url
from queue_operator.domain.errors import InvalidArgument, PayloadTooLarge
from queue_operator.domain.job import ResourceRef
from queue_operator.domain.ordering import Priority
from queue_operator.domain.retry import DEFAULT_BACKOFF, Backoff, BackoffStrategy
from queue_operator.domain.validation import Limits


def body(**spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"uid": "u1", "name": "n1", "namespace": "ns", "generation": 3},
        "spec": {"type": "send-email", **spec},
    }


def test_everything_given() -> None:
    job = to_job(
        body(
            payload={"to": "ä", "n": [1, 9223372036854775807]},
            priority="HIGH",
            delay="PT5M",
            timeout=30,
            maxAttempts=7,
            backoff={"strategy": "LINEAR", "initialDelay": 2, "maxDelay": "PT1M"},
            correlationId="c",
            tags={"region": "eu", "gpu": ""},
            callbackUrl="https://example.com/hook?for=a%20b",
        ),
        "cluster",
    )
    assert job.callback_url == "https://example.com/hook?for=a%20b"
    assert (job.id, job.namespace, job.type) == ("u1", "ns", "send-email")
    assert job.payload == '{"to":"ä","n":[1,9223372036854775807]}'.encode()
    assert job.content_type == "application/json"
    assert job.priority is Priority.HIGH
    assert (job.delay_s, job.timeout_s, job.max_attempts) == (300, 30, 7)
    assert job.backoff == Backoff(BackoffStrategy.LINEAR, 2, 60)
    assert job.tags == {"region=eu", "gpu"}
    assert job.resource == ResourceRef("cluster", "u1", "n1", 3)


def test_annotations_name_the_trace() -> None:
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    made = body(payload=1)
    assert to_job(made, "c").traceparent == ""
    for given, kept in (parent, (parent, "a=b")), ("nonsense", ("", "")):
        made["metadata"]["annotations"] = {
            "queueoperator.dev/traceparent": given,
            "queueoperator.dev/tracestate": "a=b",
        }
        job = to_job(made, "c")
        assert (job.traceparent, job.tracestate) == kept


def test_what_is_left_out_is_resolved_later() -> None:
    job = to_job(body(payload=1), "c")
    assert job.max_attempts == 0
    assert job.timeout_s is None
    assert job.backoff == DEFAULT_BACKOFF
    assert job.priority is Priority.NORMAL


def test_payload_text_goes_through_byte_for_byte() -> None:
    text = '{ "n": 1.0, "big": 123456789012345678901234567890, "z": "\\u0000" }'
    assert to_job(body(payloadText=text), "c").payload == text.encode()


def test_scheduled_at_is_utc() -> None:
    job = to_job(body(payload=1, scheduledAt="2026-01-01T02:00:00+02:00"), "c")
    assert job.scheduled_at == datetime(2026, 1, 1, tzinfo=UTC)


def test_exact_backoff_is_not_cut_at_the_default_bound() -> None:
    job = to_job(body(payload=1, backoff={"strategy": "CONSTANT", "initialDelay": "PT10M"}), "c")
    assert job.backoff is not None
    assert job.backoff.max_delay_s >= job.backoff.initial_delay_s == 600


def test_custom_backoff() -> None:
    job = to_job(body(payload=1, backoff={"strategy": "CUSTOM", "delays": [1, "PT1M"]}), "c")
    assert job.backoff is not None
    assert job.backoff.delays_s == (1, 60)


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({}, "spec.payload"),
        ({"payload": 1, "payloadText": "1"}, "spec.payload"),
        ({"payloadText": "{"}, "spec.payloadText"),
        ({"payloadText": "NaN"}, "spec.payloadText"),
        ({"payloadText": "[" * 101 + "]" * 101}, "spec.payloadText"),
        ({"payloadText": "[" * 100_000 + "]" * 100_000}, "spec.payloadText"),
        ({"payload": 1, "timeout": 0}, "spec.timeout"),
        ({"payload": 1, "timeout": "5 m"}, "spec.timeout"),
        ({"payload": 1, "delay": 5, "scheduledAt": "2026-01-01T00:00:00Z"}, "spec.delay"),
        ({"payload": 1, "scheduledAt": "2026-01-01T00:00:00"}, "spec.scheduledAt"),
        ({"payload": 1, "maxAttempts": 101}, "spec.maxAttempts"),
        ({"payload": 1, "priority": "URGENT"}, "spec.priority"),
        ({"payload": 1, "tags": {"a=b": "c"}}, "spec.tags.a=b"),
        ({"payload": 1, "tags": {"k": "v" * 128}}, "spec.tags"),
        ({"payload": 1, "tags": {str(n): "" for n in range(33)}}, "spec.tags"),
        ({"payload": 1, "backoff": {"strategy": "CUSTOM"}}, "spec.backoff.delays"),
        ({"payload": 1, "backoff": {"delays": [1]}}, "spec.backoff.delays"),
        ({"payload": 1, "backoff": {"initialDelay": "x"}}, "spec.backoff.initialDelay"),
        ({"payload": 1, "nonsense": 1}, "spec.nonsense"),
        ({"payload": 1, "callbackUrl": ""}, "spec.callbackUrl"),
        ({"payload": 1, "callbackUrl": "https://example.com/" + "a" * 2048}, "spec.callbackUrl"),
        ({"payload": 1, "correlationId": "c" * 256}, "spec.correlationId"),
    ],
)
def test_refusals_name_the_field(spec: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidArgument) as refusal:
        to_job(body(**spec), "c")
    assert refusal.value.field == field


def test_large_payload_is_refused_with_its_size() -> None:
    with pytest.raises(PayloadTooLarge) as refusal:
        to_job(body(payload="x" * 100), "c", Limits(payload_bytes=50))
    assert (refusal.value.field, refusal.value.size) == ("spec.payload", 102)


@pytest.mark.parametrize(
    ("spec", "asked"), [({}, False), ({"cancel": False}, False), ({"cancel": True}, True)]
)
def test_cancel(spec: dict[str, Any], asked: bool) -> None:
    assert cancel_requested(body(**spec)) is asked


@pytest.mark.parametrize("url", ["ftp://example.com", "https://a@example.com", "https://a.b/#c"])
def test_a_callback_is_refused_in_the_words_of_every_door(url: str) -> None:
    with pytest.raises(InvalidArgument) as everywhere:
        check_callback_url("callback_url", url)
    with pytest.raises(InvalidArgument) as here:
        to_job(body(payload=1, callbackUrl=url), "c")
    assert (here.value.field, here.value.reason) == ("spec.callbackUrl", everywhere.value.reason)
