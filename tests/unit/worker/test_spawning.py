"""Children from a handler to the session and back, without I/O."""

import asyncio
from concurrent.futures import Future
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import BaseModel

from queue_operator.client.grpc import job_of
from queue_operator.domain import retry
from queue_operator.domain.dependencies import DependencyMode
from queue_operator.domain.errors import (
    InvalidArgument,
    PayloadTooLarge,
    QuotaExceeded,
    StaleLease,
)
from queue_operator.domain.ordering import Priority
from queue_operator.testing.clauses import proves
from queue_operator.wire.convert import spawn_from_wire
from queue_operator.wire.v1 import worker_pb2 as wire
from queue_operator.worker import Backoff, BackoffStrategy, Cancelled, Submission
from queue_operator.worker.link import SendLimits, Unconnected
from queue_operator.worker.runner import Completed
from queue_operator.worker.spawning import ChildOptions
from queue_operator.worker.testing import job_context


class Image(BaseModel):
    name: str
    width: int = 100


def asked(run: Any, key: str | None = None, **fields: Any) -> "Future[str]":
    """What a handler that spawns waits for."""
    future: Future[str] = run.context._link.spawn(key, wire.ChildJob(type="child", **fields))
    return future


def sent(rig: Any) -> list[wire.Spawn]:
    return [one for batch in rig.sent("spawns") for one in batch.spawns]


def answer(rig: Any, one: wire.Spawn, **fields: Any) -> None:
    made = wire.SpawnAnswer(parent_id=one.parent_id, token=one.token, key=one.key, **fields)
    rig.session.receive(wire.ServerMessage(spawn_answers=wire.SpawnAnswers(answers=[made])))


def test_children_are_told_apart_by_their_place_or_their_key(rig: Any) -> None:
    run, other = rig.assign("a", "t1"), rig.assign("b", "t2")
    for key in (None, "mine", None, "#1"):
        asked(run, key)
    asked(other)
    assert [(one.parent_id, one.token, one.key) for one in sent(rig)] == [
        ("a", "t1", "#1"),
        ("a", "t1", "=mine"),
        ("a", "t1", "#2"),
        ("a", "t1", "=#1"),
        ("b", "t2", "#1"),
    ]


def test_a_child_has_its_id_once_it_is_stored(rig: Any) -> None:
    run = rig.assign("a", "t1")
    first, second = asked(run), asked(run)
    one, two = sent(rig)
    answer(rig, two, job_id="child-2")
    assert not first.done()
    assert second.result(0) == "child-2"
    answer(rig, one, job_id="child-1")
    assert first.result(0) == "child-1"
    rig.session.disconnected()
    assert sent(rig) == []


def test_what_was_not_answered_is_asked_again(rig: Any) -> None:
    run = rig.assign("a", "t1")
    asked(run)
    asked(run)
    first = sent(rig)
    rig.session.disconnected()
    assert sent(rig) == first
    for _ in range(2):
        rig.session.heartbeat()
        assert sent(rig) == []
    rig.session.heartbeat()
    assert sent(rig) == first


def test_children_fit_into_messages(rig: Any) -> None:
    run = rig.assign("a", "t1")
    for _ in range(4):
        asked(run, payload=bytes(1024 * 1024))
    assert [len(batch.spawns) for batch in rig.sent("spawns")] == [2, 2]
    for _ in range(600):
        asked(run)
    assert [len(batch.spawns) for batch in rig.sent("spawns")] == [256, 256, 88]


def test_a_new_token_takes_the_children_along(rig: Any, say: Any) -> None:
    run = rig.assign("a", "t1")
    done = asked(run)
    [old] = sent(rig)
    rig.session.receive(say.assigned(say.assignment("a", "t2")))
    [new] = sent(rig)
    assert (new.token, new.key) == ("t2", "#1")
    answer(rig, old, error_code=StaleLease.code)
    [again] = sent(rig)
    answer(rig, again, job_id="child")
    assert done.result(0) == "child"


@pytest.mark.parametrize(
    ("code", "message", "kind", "text"),
    [
        (StaleLease.code, "no", StaleLease, "'a'"),
        ("INVALID_TRANSITION", "job 'a' is CANCELLING", Cancelled, "cancelled"),
        ("INVALID_REQUEST", "tags: has 33 entries", InvalidArgument, "^tags: has 33 entries$"),
        ("DUPLICATE", "id: already exists: x", InvalidArgument, "^id: already exists: x$"),
        ("INTERNAL_ERROR", "the store is on fire", Exception, "on fire"),
    ],
)
def test_a_refusal_is_told(
    rig: Any, code: str, message: str, kind: type[Exception], text: str
) -> None:
    done = asked(rig.assign("a", "t1"))
    answer(rig, sent(rig)[0], error_code=code, error_message=message)
    with pytest.raises(kind, match=text):
        done.result(0)


def test_a_quota_without_room_is_told_with_what_it_is_and_how_long_to_wait(rig: Any) -> None:
    done = asked(rig.assign("a", "t1"))
    quota = wire.QuotaRefusal(limit="pending_jobs", current=3, maximum=3)
    quota.retry_after.FromMilliseconds(1500)
    answer(rig, sent(rig)[0], error_code="QUOTA_EXCEEDED", error_message="no", quota=quota)
    with pytest.raises(QuotaExceeded, match=r"^pending_jobs: 3 of 3 used; retry in 1.5 s$") as told:
        done.result(0)
    assert told.value.retry_after_s == 1.5


def test_whoever_waits_hears_that_the_job_is_gone(rig: Any, say: Any) -> None:
    run = rig.assign("a", "t1")
    done = asked(run)
    rig.session.receive(say.lease("a", "t1", wire.LEASE_STATUS_TAKEN_OVER))
    assert isinstance(done.exception(0), StaleLease)
    assert isinstance(asked(run).exception(0), StaleLease)
    assert sent(rig) == []


def test_nobody_waits_for_a_handler_that_has_ended(rig: Any) -> None:
    run = rig.assign("a", "t1")
    left_behind = asked(run)
    rig.session.finished(run, Completed(b"", ""))
    assert isinstance(left_behind.exception(0), StaleLease)
    assert sent(rig) == []
    answer(rig, wire.Spawn(parent_id="a", token="t1", key="#1"), job_id="child")


def spawned(type_: Any, payload: object = None, **options: Any) -> Any:
    """The job as the server reads it."""
    link = Unconnected()
    job_context(_link=link).spawn(type_, payload, **options)
    [job] = link.spawned
    return spawn_from_wire(wire.Spawn(parent_id="p", token="t", key="k", job=job)).job


def test_every_option_reaches_the_server() -> None:
    later = datetime(2100, 1, 1, 12, 30, tzinfo=UTC)
    delays = (timedelta(seconds=1.5), timedelta(minutes=1))
    backoff = Backoff(strategy=BackoffStrategy.CUSTOM, delays=delays)
    job = spawned(
        "resize",
        Image(name="x"),
        job_id="mine",
        tags={"eu": "", "size": "large"},
        priority="HIGH",
        scheduled_at=later,
        timeout="PT5M",
        max_attempts=7,
        backoff=backoff,
        correlation_id="order-7",
        idempotency_key="once",
        depends_on=["one", "two"],
        dependency_type=DependencyMode.CHAIN,
        callback_url="https://example.org/told",
        suspended=True,
    )
    assert (job.type, job.id) == ("resize", "mine")
    assert (job.payload, job.content_type) == (b'{"name":"x","width":100}', "application/json")
    assert (job.tags, job.priority) == (frozenset({"eu", "size=large"}), Priority.HIGH)
    assert (job.scheduled_at, job.timeout_s, job.max_attempts) == (later, 300.0, 7)
    assert job.backoff == retry.backoff_of(BackoffStrategy.CUSTOM, delays_s=(1.5, 60.0))
    assert (job.correlation_id, job.idempotency_key) == ("order-7", "once")
    assert (job.callback_url, job.suspended) == ("https://example.org/told", True)
    assert (job.depends_on, job.dependency_mode) == (("one", "two"), DependencyMode.CHAIN)


@proves("external-api.JobContext.rule.12")
def test_a_whole_submission_is_spawned_as_it_would_be_submitted() -> None:
    whole = Submission(
        type="resize",
        payload={"name": "x"},
        job_id="mine",
        priority=Priority.HIGH,
        delay=timedelta(seconds=90),
        timeout=timedelta(minutes=5),
        max_attempts=7,
        backoff=Backoff(strategy=BackoffStrategy.LINEAR, initial_delay=timedelta(seconds=2)),
        idempotency_key="once",
        correlation_id="order-7",
        tags={"eu": "", "size": "large"},
        depends_on=("one",),
        dependency_type=DependencyMode.AFTER_ANY,
        callback_url="https://example.org/told",
        suspended=True,
    )
    assert whole.model_fields_set >= set(Submission.model_fields) - {
        "scheduled_at",
        "payload_bytes",
    }
    job = spawned(whole)
    assert job == job_of(whole)
    assert job.suspended
    assert spawned(Submission(type="t", payload_bytes=b"\x00")).payload == b"\x00"
    assert spawned(Submission(type="t", payload=None)).payload == b"null"


def test_an_option_is_whatever_a_submission_says() -> None:
    said = set(Submission.model_fields) - {"type", "payload", "payload_bytes"}
    assert set(ChildOptions.__annotations__) == said


@pytest.mark.parametrize("beside", [{"payload": 1}, {"delay": 5}, {"tags": ["a"]}])
def test_nothing_stands_beside_a_whole_submission(beside: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument, match="say in it what stands beside it") as refused:
        spawned(Submission(type="t", payload=None), **beside)
    assert refused.value.field == "submission"


@pytest.mark.parametrize("text", ["half \ud800", "\x00"])
@pytest.mark.parametrize(
    ("field", "make"),
    [
        ("type", lambda text: {"type_": text}),
        ("key", lambda text: {"key": text}),
        ("job_id", lambda text: {"job_id": text}),
        ("priority", lambda text: {"priority": text}),
        ("correlation_id", lambda text: {"correlation_id": text}),
        ("idempotency_key", lambda text: {"idempotency_key": text}),
        ("dependency_type", lambda text: {"dependency_type": text}),
        ("callback_url", lambda text: {"callback_url": text}),
        ("depends_on", lambda text: {"depends_on": [text]}),
        ("tags", lambda text: {"tags": [text]}),
        ("tags", lambda text: {"tags": {text: "a"}}),
        ("tags.a", lambda text: {"tags": {"a": text}}),
    ],
)
def test_text_that_no_message_holds_is_named_and_nothing_is_sent(
    field: str, make: Any, text: str
) -> None:
    with pytest.raises(InvalidArgument, match="surrogates") as refused:
        spawned(**({"type_": "child"} | make(text)))
    assert refused.value.field == field


def test_what_is_left_out_is_the_servers_to_decide() -> None:
    job = spawned("resize", tags=["b", "a"], delay=timedelta(seconds=2))
    assert (job.id, job.payload, job.content_type) == ("", b"", "application/octet-stream")
    assert (job.delay_s, job.timeout_s, job.max_attempts) == (2.0, None, 0)
    assert (job.priority, job.backoff, job.correlation_id) == (Priority.NORMAL, None, "")
    assert job.tags == frozenset({"a", "b"})
    assert spawned("resize", b"\x00\xff").payload == b"\x00\xff"
    assert spawned("resize", [1, {"a": None}]).payload == b'[1,{"a":null}]'


@pytest.mark.parametrize(
    ("field", "given"),
    [
        ("payload", {"payload": object()}),
        ("payload", {"payload": float("nan")}),
        ("type", {"type_": 7}),
        ("key", {"key": ""}),
        ("delay", {"delay": "soon"}),
        ("timeout", {"timeout": True}),
        ("max_attempts", {"max_attempts": 0}),
        ("max_attempts", {"max_attempts": "3"}),
        ("scheduled_at", {"scheduled_at": datetime(2100, 1, 1)}),
        ("tags", {"tags": [1]}),
        ("tags", {"tags": "eu"}),
        ("tags", {"tags": 7}),
        ("tags.a", {"tags": {"a": 1}}),
        ("depends_on", {"depends_on": "one"}),
        ("tags.a=b", {"tags": {"a=b": "c"}}),
        ("depends_on", {"depends_on": [None]}),
        ("backoff", {"backoff": {"strategy": "CONSTANT"}}),
        ("correlation_id", {"correlation_id": 7}),
        ("suspended", {"suspended": "no"}),
    ],
)
def test_what_cannot_be_sent_is_named(field: str, given: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument) as refused:
        spawned(**({"type_": "child"} | given))
    assert refused.value.field == field


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("prioritee", "prioritee: is no option of a job; did you mean 'priority'?"),
        ("dependency_mode", "did you mean 'dependency_type'?"),
        ("delay_s", "did you mean 'delay'?"),
        ("id", "there are: job_id, tags, "),
    ],
)
def test_an_option_that_does_not_exist_is_refused(name: str, told: str) -> None:
    given: dict[str, Any] = {name: 1}
    with pytest.raises(InvalidArgument) as refused:
        spawned("child", **given)
    assert told in str(refused.value)


@pytest.mark.parametrize(
    ("field", "job"),
    [
        ("priority", wire.ChildJob(type="t", priority="URGENT")),
        ("dependency_type", wire.ChildJob(type="t", dependency_type="LATER")),
        ("payload", wire.ChildJob(type="t", content_type="application/json", payload=b"{")),
        ("payload", wire.ChildJob(type="t", content_type="application/json", payload=b"NaN")),
        (
            "payload",
            wire.ChildJob(type="t", content_type="application/json", payload=b"[" * 200),
        ),
        (
            "backoff.strategy",
            wire.ChildJob(type="t", backoff=wire.ChildBackoff(strategy="RANDOM")),
        ),
    ],
)
def test_what_other_clients_send_is_looked_at_too(field: str, job: wire.ChildJob) -> None:
    with pytest.raises(InvalidArgument) as refused:
        spawn_from_wire(wire.Spawn(parent_id="p", token="t", key="k", job=job))
    assert refused.value.field == field


def test_durations_of_other_clients_are_looked_at_too() -> None:
    for name in ("delay", "timeout"):
        job = wire.ChildJob(type="t")
        getattr(job, name).FromSeconds(-1)
        with pytest.raises(InvalidArgument, match=name):
            spawn_from_wire(wire.Spawn(parent_id="p", token="t", key="k", job=job))


def test_a_large_payload_is_refused_before_it_is_sent() -> None:
    link = Unconnected()
    context = job_context(_link=link, _limits=SendLimits(payload_bytes=3))
    with pytest.raises(PayloadTooLarge) as refused:
        context.spawn("child", b"1234")
    assert (refused.value.field, refused.value.limit) == ("payload", 3)
    assert link.spawned == []


def test_a_function_gets_the_id_and_a_coroutine_awaits_it() -> None:
    context = job_context()

    async def handler() -> str:
        answer: str = await context.spawn("child", job_id="two")
        return answer

    assert context.spawn("child", job_id="one") == "one"
    assert asyncio.run(handler()) == "two"


def test_a_cancelled_job_spawns_nothing() -> None:
    link = Unconnected()
    context = job_context(_link=link)
    context.cancelled.set()
    with pytest.raises(Cancelled):
        context.spawn("child")
    assert link.spawned == []
