"""From the body of a request to jobs."""

import base64
import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.unit.api.services import SERVICES

from queue_operator.api.batches import batch_from, refusal
from queue_operator.api.errors import InvalidBody, details_of
from queue_operator.api.schemas import BatchSubmission
from queue_operator.api.submissions import job_from
from queue_operator.domain.dependencies import DependencyMode
from queue_operator.domain.errors import DuplicateJob, InvalidArgument, PayloadTooLarge
from queue_operator.domain.job import Job
from queue_operator.domain.ordering import Priority
from queue_operator.domain.retry import Backoff, BackoffStrategy
from queue_operator.settings import LimitSettings, Settings
from queue_operator.testing.clauses import proves


def parse(**fields: Any) -> Job:
    return job_from(json.dumps({"type": "t", **fields}).encode(), "ns", SERVICES)


def refused(body: bytes) -> list[str]:
    with pytest.raises(InvalidArgument) as caught:
        job_from(body, "ns", SERVICES)
    return [detail.field for detail in details_of(caught.value)]


def test_what_is_left_out_is_left_to_the_first_claim() -> None:
    job = parse(payload={"a": 1})
    assert job == Job(
        id="made-id",
        type="t",
        namespace="ns",
        payload=b'{"a":1}',
        content_type="application/json",
        max_attempts=0,
        backoff=None,
    )


def test_everything_that_is_given_arrives() -> None:
    job = parse(
        job_id="mine",
        payload_base64=base64.b64encode(b"\x00\xff").decode(),
        priority="CRITICAL",
        delay="PT1M30S",
        timeout=2.5,
        max_attempts=7,
        backoff={"strategy": "LINEAR", "initial_delay": 1, "max_delay": "PT1H", "multiplier": 3},
        correlation_id="trace",
        tags={"region": "eu", "urgent": ""},
    )
    assert job == Job(
        id="mine",
        type="t",
        namespace="ns",
        payload=b"\x00\xff",
        content_type="application/octet-stream",
        priority=Priority.CRITICAL,
        delay_s=90.0,
        timeout_s=2.5,
        max_attempts=7,
        backoff=Backoff(BackoffStrategy.LINEAR, 1.0, 3600.0, 3.0),
        correlation_id="trace",
        tags=frozenset({"region=eu", "urgent"}),
    )


def test_a_payload_of_null_is_a_payload() -> None:
    assert parse(payload=None).payload == b"null"


@proves("external-api.Time.rule.1")
def test_a_time_keeps_its_zone() -> None:
    job = parse(payload=1, scheduled_at="2030-01-01T12:00:00+02:00")
    assert job.scheduled_at == datetime(2030, 1, 1, 10, tzinfo=UTC)


def test_custom_delays() -> None:
    job = parse(payload=1, backoff={"strategy": "CUSTOM", "delays": [1, "PT2S"]})
    assert job.backoff is not None
    assert job.backoff.delays_s == (1.0, 2.0)


@proves("external-api.Time.rule.1", "external-api.APIError.rule.5")
@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({}, "payload"),
        ({"payload": 1, "payload_base64": "AA=="}, "payload"),
        ({"payload_base64": "A"}, "payload_base64"),
        ({"payload_base64": "é"}, "payload_base64"),
        ({"payload": 1, "type": ""}, "type"),
        ({"payload": 1, "type": "x" * 256}, "type"),
        ({"payload": 1, "type": None}, "type"),
        ({"payload": 1, "type": "a\x00b"}, "type"),
        ({"payload": 1, "job_id": ""}, "job_id"),
        ({"payload": 1, "job_id": 5}, "job_id"),
        ({"payload": 1, "priority": "normal"}, "priority"),
        ({"payload": 1, "delay": -1}, "delay"),
        ({"payload": 1, "delay": "5 minutes"}, "delay"),
        ({"payload": 1, "delay": "P1M"}, "delay"),
        ({"payload": 1, "delay": True}, "delay"),
        ({"payload": 1, "delay": 1e12}, "delay"),
        ({"payload": 1, "scheduled_at": "2030-01-01T00:00:00"}, "scheduled_at"),
        ({"payload": 1, "scheduled_at": 1700000000}, "scheduled_at"),
        ({"payload": 1, "scheduled_at": "tomorrow"}, "scheduled_at"),
        ({"payload": 1, "scheduled_at": "1700000000"}, "scheduled_at"),
        ({"payload": 1, "scheduled_at": "2030-01-01"}, "scheduled_at"),
        # In UTC these are in the years 10000 and 0.
        ({"payload": 1, "scheduled_at": "9999-12-31T23:59:59-14:00"}, "scheduled_at"),
        ({"payload": 1, "scheduled_at": "0001-01-01T00:00:00+14:00"}, "scheduled_at"),
        ({"payload": 1, "timeout": 0}, "timeout"),
        ({"payload": 1, "max_attempts": 0}, "max_attempts"),
        ({"payload": 1, "max_attempts": 101}, "max_attempts"),
        ({"payload": 1, "max_attempts": True}, "max_attempts"),
        ({"payload": 1, "max_attempts": 1.5}, "max_attempts"),
        ({"payload": 1, "backoff": {"strategy": "CUSTOM"}}, "backoff.delays"),
        ({"payload": 1, "backoff": {"delays": [1]}}, "backoff.delays"),
        ({"payload": 1, "backoff": {"multiplier": 0.5}}, "backoff.multiplier"),
        ({"payload": 1, "backoff": {"max": 1}}, "backoff.max"),
        ({"payload": 1, "tags": {"a=b": ""}}, "tags.a=b"),
        ({"payload": 1, "tags": {"a": 1}}, "tags.a"),
        ({"payload": 1, "tags": {"a": "x" * 128}}, "tags"),
        ({"payload": 1, "tags": {str(i): "" for i in range(33)}}, "tags"),
        ({"payload": 1, "idempotency_key": ""}, "idempotency_key"),
        ({"payload": 1, "idempotency_key": "x" * 256}, "idempotency_key"),
        ({"payload": 1, "depends_on": "a"}, "depends_on"),
        ({"payload": 1, "depends_on": [""]}, "depends_on[0]"),
        ({"payload": 1, "depends_on": ["a", "a"]}, "depends_on"),
        ({"payload": 1, "depends_on": [str(n) for n in range(1001)]}, "depends_on"),
        ({"payload": 1, "job_id": "me", "depends_on": ["a", "me"]}, "depends_on[1]"),
        ({"payload": 1, "dependency_type": "BEFORE"}, "dependency_type"),
        ({"payload": 1, "callback_url": "ftp://x"}, "callback_url"),
        ({"payload": 1, "callback_url": "http://me:secret@x/"}, "callback_url"),
        ({"payload": 1, "callback_url": "http://"}, "callback_url"),
        ({"payload": 1, "callback_url": "http://x/" + "y" * 2048}, "callback_url"),
        ({"payload": 1, "correlation_id": "a\x00"}, "correlation_id"),
    ],
)
def test_a_faulty_field_is_named(fields: dict[str, Any], field: str) -> None:
    assert refused(json.dumps({"type": "t", **fields}).encode()) == [field]


@proves("external-api.APIError.rule.3")
def test_every_fault_is_named_at_once() -> None:
    body = {"type": 1, "payload": 1, "priority": "x", "depends_on": 3, "delay": -1}
    assert sorted(refused(json.dumps(body).encode())) == ["delay", "depends_on", "priority", "type"]


@proves("external-api.JobSubmission.expect.2", "external-api.JobSubmission.rule.5")
def test_faults_of_every_kind_are_named_at_once() -> None:
    body = {
        "type": "x" * 256,
        "job_id": "me",
        "unknown": 1,
        "priority": "x",
        "delay": 1,
        "scheduled_at": "2030-01-01T00:00:00Z",
        "tags": {"a=b": "c"},
        "backoff": {"strategy": "CUSTOM"},
        "depends_on": ["me"],
        "callback_url": "mailto:me",
        "timeout": 0,
        "correlation_id": "\x00",
    }
    assert set(refused(json.dumps(body).encode())) == {
        "type",
        "unknown",
        "priority",
        "delay",
        "scheduled_at",
        "tags.a=b",
        "backoff.delays",
        "depends_on[0]",
        "callback_url",
        "timeout",
        "correlation_id",
        "payload",
    }


@pytest.mark.parametrize(
    ("fields", "faults"),
    [
        ({"type": 1, "payload_base64": 2}, {"type", "payload_base64"}),
        ({"type": 1}, {"type", "payload"}),
        ({"type": "", "payload": 1, "payload_base64": "AA=="}, {"type", "payload"}),
        ({"max_attempts": 0, "payload_base64": "A"}, {"max_attempts", "payload_base64", "type"}),
        ({"type": "t", "payload": "x" * 1000, "delay": -1}, {"payload", "delay"}),
        ({"type": "t", "payload": "x" * 1000, "tags": {"": ""}}, {"payload", "tags."}),
        (
            {"type": "t", "payload": 1, "delay": 1, "scheduled_at": "2030-01-01T00:00:00Z"},
            {"delay", "scheduled_at"},
        ),
    ],
)
def test_no_fault_hides_another(fields: dict[str, Any], faults: set[str]) -> None:
    assert set(refused(json.dumps(fields).encode())) == faults


def test_what_a_job_waits_for_and_whom_it_calls_arrives() -> None:
    job = parse(
        payload=1,
        idempotency_key="k",
        depends_on=["a", "b"],
        dependency_type="CHAIN",
        callback_url="https://example.com/done?x=1",
    )
    assert (job.idempotency_key, job.depends_on) == ("k", ("a", "b"))
    assert job.dependency_mode is DependencyMode.CHAIN
    assert job.callback_url == "https://example.com/done?x=1"


@pytest.mark.parametrize("value", [b"NaN", b"Infinity", b"-Infinity", b"1e400", b"[NaN]"])
def test_numbers_outside_of_json_are_refused(value: bytes) -> None:
    assert refused(b'{"type":"t","payload":%s}' % value) == ["payload"]


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"3", b'{"type":"t","payload":"\\ud800"}', b'{"type":"\xff"}']
)
def test_what_is_no_json_object_is_refused_as_a_whole(body: bytes) -> None:
    assert refused(body) == [""]


@pytest.mark.parametrize("depth", [101, 150, 200, 300, 10_000, 100_000])
@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}")])
def test_depth_bombs_are_refused(depth: int, opening: bytes, closing: bytes) -> None:
    limits = LimitSettings(payload_bytes=10_000_000)
    services = replace(SERVICES, settings=Settings(limits=limits), limits=limits.to_limits())
    bomb = b'{"type":"t","payload":' + opening * depth + b"1" + closing * depth + b"}"
    with pytest.raises(InvalidArgument, match=r"nested deeper than 100|recursion limit"):
        job_from(bomb, "ns", services)
    batch = batch_from(b'{"jobs":[{"type":"t","payload":1}],"atomic":true}', "ns", services)
    assert len(batch.items) == 1


@pytest.mark.parametrize("depth", [50, 100])
def test_deep_but_allowed_payloads_pass(depth: int) -> None:
    bomb = b'{"type":"t","payload":' + b"[" * depth + b"]" * depth + b"}"
    assert job_from(bomb, "ns", SERVICES).payload == b"[" * depth + b"]" * depth


def test_the_payload_is_measured_as_it_is_stored() -> None:
    assert len(parse(payload="é" * 499).payload) == 1000
    with pytest.raises(PayloadTooLarge):
        parse(payload="é" * 500)
    with pytest.raises(PayloadTooLarge):
        parse(payload_base64=base64.b64encode(b"x" * 1001).decode())


def test_a_body_that_cannot_fit_is_not_even_parsed() -> None:
    with pytest.raises(PayloadTooLarge):
        job_from(b"[" * 1_300_000, "ns", SERVICES)


@pytest.mark.parametrize("filler", [b" ", b"\n", b"\t\r"])
def test_white_space_does_not_count(filler: bytes) -> None:
    body = b'{"type":"t","payload":[' + filler * 100_000 + b"1]}"
    assert job_from(body, "ns", SERVICES).payload == b"[1]"


def test_escapes_count_as_what_they_stand_for() -> None:
    limits = LimitSettings(payload_bytes=100_000)
    services = replace(SERVICES, settings=Settings(limits=limits), limits=limits.to_limits())
    body = b'{"type":"t","payload":"' + b"\\u0041" * 99_000 + b'"}'
    assert len(body) > 500_000
    assert job_from(body, "ns", services).payload == b'"' + b"A" * 99_000 + b'"'


def batch(*jobs: Any, **fields: Any) -> Any:
    return batch_from(json.dumps({"jobs": jobs, **fields}).encode(), "ns", SERVICES)


def submission(**fields: Any) -> dict[str, Any]:
    return {"type": "t", "payload": 1, **fields}


def test_a_batch_is_atomic_unless_told_otherwise() -> None:
    assert batch(submission(job_id="a")).atomic
    assert not batch(submission(job_id="a"), atomic=False).atomic


def test_each_item_of_a_batch_is_a_job_or_an_error() -> None:
    items = batch(submission(job_id="a"), submission(job_id="a"), submission(x=1)).items
    assert [type(item) for item in items] == [Job, DuplicateJob, InvalidBody]


def test_an_atomic_batch_names_the_faults_of_all_its_jobs() -> None:
    error = refusal(batch(submission(x=1), 3, submission(max_attempts=0)).items)
    assert error is not None
    fields = [detail.field for detail in details_of(error)]
    assert fields == ["jobs[0].x", "jobs[1]", "jobs[2].max_attempts"]


def test_an_atomic_batch_with_an_id_twice_is_a_duplicate() -> None:
    error = refusal(batch(submission(job_id="a"), submission(job_id="a")).items)
    assert isinstance(error, DuplicateJob)
    assert [detail.field for detail in details_of(error)] == ["jobs[1].job_id"]


def test_an_atomic_batch_with_an_oversized_payload_is_too_large() -> None:
    error = refusal(batch(submission(), submission(payload="x" * 1000)).items)
    assert isinstance(error, PayloadTooLarge)
    assert error.field == "jobs[1].payload"


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b"{}", "jobs"),
        (b'{"jobs":[]}', "jobs"),
        (b'{"jobs":3}', "jobs"),
        (b'{"jobs":[1,2,3,4]}', "jobs"),
        (b'{"jobs":[{}],"atomic":1}', "atomic"),
        (b'{"jobs":[{}],"atomic":null}', "atomic"),
        (b'{"jobs":[{}],"extra":1}', "extra"),
        (b"[]", ""),
        (b"{", ""),
        (b'{"jobs":' + b"[" * 100_000, ""),
        (b'{"jobs":' + b"[" * 100_000 + b"]" * 100_000 + b"}", ""),
    ],
)
def test_a_malformed_batch_is_refused(body: bytes, field: str) -> None:
    with pytest.raises(InvalidBody) as caught:
        batch_from(body, "ns", SERVICES)
    assert [detail.field for detail in caught.value.details] == [field]


def test_very_many_unknown_fields_are_not_all_told() -> None:
    body = b'{"type":"t","payload":1,' + b",".join(b'"k%d":1' % n for n in range(5_000)) + b"}"
    assert len(refused(body)) == 100


def test_the_fields_of_a_batch_are_those_of_its_schema() -> None:
    for name in BatchSubmission.model_fields:
        body = json.dumps({"jobs": [submission()], name: "wrong"}).encode()
        with pytest.raises(InvalidBody) as caught:
            batch_from(body, "ns", SERVICES)
        assert caught.value.field == name
