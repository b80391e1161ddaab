"""Streams of events, as the clients hear them from a server that breaks in every way."""

import json
import logging
from itertools import pairwise
from typing import Any

import httpx
import pytest
from tests.unit.client.scripted import NO_STREAM, Answer, Script, serving
from tests.unit.client.test_flows import DOWN, Clock, client, job

from queue_operator.client import (
    AsyncQueueClient,
    JobEvent,
    JobStatus,
    Phase,
    QueueClient,
    RetryPolicy,
)
from queue_operator.client.listening import STREAM, Ear, Hear, Listen, OutOfTime
from queue_operator.client.protocol import Call, Reply
from queue_operator.client.sse import MOST_BYTES, Decoder, ServerEvent, TooLong
from queue_operator.domain.errors import Forbidden, InvalidArgument, JobNotFound, Unavailable

AT = "2030-01-01T00:00:00Z"
POLICY = RetryPolicy(attempts=1, rng=lambda: 1.0)


def event(position: str, status: str = "RUNNING", **others: Any) -> bytes:
    told = {"job_id": "a", "namespace": "n", "type": "t", "status": status, "attempt": 1}
    data = json.dumps({**told, "event": "CLAIM", "at": AT, **others})
    return f"id: {position}\nevent: job\ndata: {data}\n\n".encode()


END = b"event: end\ndata: {}\n\n"


def stream(*parts: bytes) -> Answer:
    return Answer(200, stream=b"retry: 1000\n\n:\n\n" + b"".join(parts))


def refused(status: int, code: str, message: str, field: str = "") -> Answer:
    details = [{"field": field, "code": code, "message": message}] if field else []
    return Answer(status, {"code": code, "message": message, "details": details})


EXPIRED = refused(410, "POSITION_EXPIRED", "begin anew")
RUNNING = Answer(200, job("a"))
COMPLETED = Answer(200, job("a", "COMPLETED"))


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n"])
@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_events_are_the_same_however_their_bytes_are_cut(end: str, size: int) -> None:
    lines = [
        *(": a comment", "retry: 250", "id: 1", "event: job", "data: ä\u2028b", "data:c", ""),
        *("unknown: x", "data", "", "id: 2", "", "retry: soon", "data:  two", "", "data: cut off"),
    ]
    raw, decoder = end.join(lines).encode(), Decoder("0")
    told = [one for at in range(0, len(raw), size) for one in decoder.feed(raw[at : at + size])]
    assert told == [
        ServerEvent("job", "ä\u2028b\nc", "1"),
        ServerEvent("message", "", "1"),
        ServerEvent("message", " two", "2"),
    ]
    assert decoder.retry_s == 0.25


def test_an_event_that_never_ends_is_not_kept() -> None:
    line = b"data: " + b"x" * (MOST_BYTES // 2)
    for chunk in line, line + b"\n":
        decoder = Decoder()
        decoder.feed(chunk)
        with pytest.raises(TooLong):
            decoder.feed(chunk)


def watched(script: Script, clock: Clock, *given: str, **options: Any) -> list[JobEvent]:
    with client(script, clock, POLICY) as queue:
        return list(queue.watch(*given, **options))


def test_a_stream_that_breaks_goes_on_after_the_last_event() -> None:
    clock = Clock()
    parts = [
        stream(event("p1", "SCHEDULED"), event("p2"), b"id: p3\nevent: job\ndata: {"),
        Answer(0),
        DOWN,
        stream(b"event: slow\ndata: {}\n\n"),
        stream(event("p3", "COMPLETED"), END),
    ]
    with serving(RUNNING, streams=parts) as script:
        told = watched(script, clock, "a")
    assert [(one.status, one.position) for one in told] == [
        ("SCHEDULED", "p1"),
        ("RUNNING", "p2"),
        ("COMPLETED", "p3"),
    ]
    positions = [asked.headers.get("last-event-id") for asked in script.listened]
    assert positions == [None, "p2", "p2", "p2", "p2"]
    assert clock.pauses == pytest.approx([1.0, 0.4, 0.8, 1.0])
    assert not script.asked


def test_a_filter_and_a_position_are_sent_as_they_are_given() -> None:
    with serving(RUNNING, streams=[stream(END)]) as script:
        options = {"types": ["t", "u"], "states": [Phase.FAILED], "tags": {"k": "v", "bare": ""}}
        watched(script, Clock(), after="p7", namespace="n", **options)
    [asked] = script.listened
    query = "namespace=n&type=t&type=u&status=FAILED&tag=k%3Dv&tag=bare"
    assert asked.path == f"/v1/events?{query}"
    assert asked.headers["last-event-id"] == "p7"


def test_a_position_that_is_too_old_is_told_and_given_up(
    caplog: pytest.LogCaptureFixture,
) -> None:
    parts = [EXPIRED, stream(event("p9", "COMPLETED"), END)]
    gaps = list[str]()
    with serving(RUNNING, streams=parts) as script:
        assert len(watched(script, Clock(), "a", after="p1", on_gap=gaps.append)) == 1
    assert [asked.headers.get("last-event-id") for asked in script.listened] == ["p1", None]
    assert gaps == ["begin anew; what comes next is told from now on"]
    with serving(RUNNING, streams=parts) as script, caplog.at_level(logging.WARNING):
        watched(script, Clock(), "a", after="p1")
    assert gaps[0] in caplog.text


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (refused(400, "INVALID_REQUEST", "is no position", "Last-Event-ID"), InvalidArgument),
        (refused(403, "FORBIDDEN", "no"), Forbidden),
    ],
)
def test_what_the_server_refuses_is_an_error(answer: Answer, kind: type[Exception]) -> None:
    with serving(RUNNING, streams=[answer]) as script, pytest.raises(kind):
        watched(script, Clock(), "a", after="p1")


def test_a_position_that_is_none_is_not_sent() -> None:
    with serving(RUNNING) as script:
        with pytest.raises(InvalidArgument, match="after"):
            watched(script, Clock(), "a", after="p\n1")
        assert not script.listened


def test_a_server_that_stays_away_is_given_up() -> None:
    clock = Clock()
    with serving(RUNNING, streams=[DOWN]) as script, pytest.raises(Unavailable):
        watched(script, clock, "a", outage_s=30)
    assert 30 <= clock.now < 45


@pytest.mark.parametrize(
    "answer",
    [NO_STREAM, refused(501, "INTERNAL_ERROR", "cannot be followed")],
    ids=["older", "without-a-log"],
)
def test_without_streams_a_job_is_looked_at(answer: Answer) -> None:
    clock = Clock()
    looks = [RUNNING, RUNNING, DOWN, Answer(200, job("a", attempt=2)), COMPLETED]
    with serving(*looks, streams=[answer]) as script:
        told = watched(script, clock, "a", poll_s=3)
    assert [(one.status, one.attempt) for one in told] == [
        ("RUNNING", 1),
        ("RUNNING", 2),
        ("COMPLETED", 1),
    ]
    assert clock.pauses == [3, 3, 3, 3]


def test_without_streams_a_missing_job_is_an_error() -> None:
    missing = refused(404, "NOT_FOUND", "no such job")
    with serving(missing, streams=[missing]) as script, pytest.raises(JobNotFound):
        watched(script, Clock(), "a")


def test_without_streams_jobs_are_looked_for() -> None:
    def page(*jobs: dict[str, Any]) -> Answer:
        return Answer(200, {"jobs": list(jobs), "next_cursor": None})

    def at(job_id: str, state: str, second: int) -> dict[str, Any]:
        return job(job_id, state, updated_at=f"2030-01-01T00:00:{second:02}Z")

    pages = [
        page(at("old", "COMPLETED", 10)),
        page(at("b", "RUNNING", 20), at("a", "RUNNING", 15), at("old", "COMPLETED", 10)),
        page(at("b", "COMPLETED", 21), at("a", "RUNNING", 15)),
    ]
    with serving(*pages) as script, client(script, Clock()) as queue:
        events = queue.watch(types=["t"])
        told = [next(events) for _ in range(3)]
        events.close()  # type: ignore[attr-defined]
    assert [(one.job_id, one.status) for one in told] == [
        ("a", "RUNNING"),
        ("b", "RUNNING"),
        ("b", "COMPLETED"),
    ]
    assert "updated_after" not in script.asked[0].body
    assert script.asked[2].body["updated_after"] == "2030-01-01T00:00:15Z"


def test_waiting_hears_of_the_end_and_looks_then() -> None:
    clock = Clock()
    parts = [stream(event("p1"), event("p2")), stream(event("p3", "COMPLETED"), END)]
    with serving(RUNNING, COMPLETED, streams=parts) as script, client(script, clock) as queue:
        assert queue.wait("a").state == "COMPLETED"
    assert [len(script.asked), len(script.listened)] == [2, 2]
    assert script.listened[1].headers["last-event-id"] == "p2"
    assert script.listened[0].path == "/v1/jobs/a/events"


def test_where_there_is_no_room_for_a_stream_waiting_looks() -> None:
    clock = Clock()
    full = refused(429, "QUOTA_EXCEEDED", "too many streams")
    with serving(RUNNING, COMPLETED, streams=[full]) as script, client(script, clock) as queue:
        assert queue.wait("a").state == "COMPLETED"
    assert clock.pauses == pytest.approx([0.1])
    assert len(script.listened) == 1


def test_a_job_that_was_retried_as_it_ended_is_waited_for_again() -> None:
    parts = [stream(event("p1", "FAILED"), END), stream(event("p2", "COMPLETED"), END)]
    looks = [RUNNING, RUNNING, RUNNING, COMPLETED]
    with serving(*looks, streams=parts) as script, client(script, Clock()) as queue:
        assert queue.wait("a").state == "COMPLETED"
    assert script.listened[1].headers["last-event-id"] == "p1"


def test_waiting_on_a_stream_ends_after_the_time_that_was_given() -> None:
    clock = Clock()
    with (
        serving(RUNNING, streams=[stream(event("p1"))]) as script,
        client(script, clock, POLICY) as queue,
        pytest.raises(TimeoutError, match="'a' has not ended within 5 s: RUNNING"),
    ):
        queue.wait("a", timeout_s=5)
    assert clock.now == 5.0


def heard(ear: Ear, clock: Clock, *frames: tuple[float, bytes]) -> list[float]:
    """When streams are opened by one who hears that until the time is over: each first says how
    often to come back, and after so many seconds what is in the frames. Nothing is instant.
    """
    opened, said = list[float](), list(frames)
    silence_s, is_new = 0.0, False
    flow = ear.next()
    reply: Reply | None = None
    while True:
        try:
            step = next(flow) if reply is None else flow.send(reply)
        except OutOfTime:
            return opened
        except StopIteration:
            flow, reply = ear.next(), None
            continue
        clock.now += 0.01
        reply = Reply()
        match step:
            case Listen():
                opened.append(clock.now)
                silence_s, is_new = step.silence_s, True
                reply = Reply(httpx.Response(200, headers={"content-type": STREAM}))
            case Hear() if is_new:
                is_new = False
                reply = Reply(chunk=b"retry: 1000\nid: p0\n\n")
            case Hear():
                ends = clock.now + silence_s
                if said and said[0][0] < ends:
                    at, frame = said.pop(0)
                    clock.now = max(at, clock.now)
                    reply = Reply(chunk=frame)
                else:
                    clock.now = ends
                    reply = Reply(failure=httpx.ReadTimeout("silence"))
            case _:
                pass


@pytest.mark.parametrize(
    "frames",
    [
        (),
        tuple((15.0 * n, b":\nid: p0\n\n") for n in range(1, 5)),
        tuple((float(n), event(f"p{n}")) for n in range(1, 59)),
    ],
    ids=["silence", "heartbeats", "events"],
)
def test_near_its_end_a_wait_opens_few_streams_and_is_not_late(
    frames: tuple[tuple[float, bytes], ...],
) -> None:
    clock = Clock()
    call = Call("GET", "/v1/jobs/a/events", {})
    ear = Ear(call, POLICY, clock, outage_s=100, until=60.0)
    opened = heard(ear, clock, *frames)
    assert 60 <= clock.now <= 61.5
    # At most one for each second of those in which its silence could be borne for too long.
    assert len(opened) <= 1 + (45 if frames else 1)
    assert all(later - one > 0.9 for one, later in pairwise(opened))


def test_who_is_told_of_progress_hears_of_states_and_looks_while_the_job_runs() -> None:
    clock = Clock()

    def half(percent: int) -> Answer:
        done = {"percent": percent, "message": "", "updated_at": AT}
        return Answer(200, job("a", progress=done))

    waits = Answer(200, job("a", "SCHEDULED"))
    looks = [waits, half(10), half(20), Answer(200, job("a", "RETRYING")), RUNNING, COMPLETED]
    parts = [
        stream(event("p1", "SCHEDULED"), event("p2")),
        stream(event("p5", "RETRYING"), event("p6", "RETRYING", attempt=2)),
    ]
    told: list[JobStatus] = []
    with serving(*looks, streams=parts) as script, client(script, clock) as queue:
        assert queue.wait("a", poll_s=2, on_status=told.append).state == "COMPLETED"
    states = ["SCHEDULED", "RUNNING", "RUNNING", "RETRYING", "RUNNING", "COMPLETED"]
    assert [one.state for one in told] == states
    assert [one.progress and one.progress.percent for one in told[1:3]] == [10, 20]
    # None while a stream tells.
    assert clock.pauses == pytest.approx([0.1, 0.15, 0.225])
    # The second stream begins with how the job is then.
    assert [asked.headers.get("last-event-id") for asked in script.listened] == [None, None]


def test_who_is_told_of_looks_is_told_of_the_end_that_a_stream_tells() -> None:
    waits = Answer(200, job("a", "SCHEDULED"))
    parts = [stream(event("p1", "SCHEDULED"), event("p2", "CANCELLED"), END)]
    told: list[str] = []
    with serving(waits, Answer(200, job("a", "CANCELLED")), streams=parts) as script:
        with client(script, Clock()) as queue:
            queue.wait("a", on_status=lambda status: told.append(status.state))
        assert len(script.asked) == 2
    assert told == ["SCHEDULED", "CANCELLED"]


def test_a_stream_that_is_left_is_closed() -> None:
    parts = [stream(event("p1"), event("p2"))]
    with serving(RUNNING, streams=parts) as script, QueueClient(script.url) as queue:
        events = queue.watch("a")
        assert next(events).position == "p1"
        events.close()  # type: ignore[attr-defined]
        with pytest.raises(StopIteration):
            next(events)


async def test_the_asynchronous_client_listens_likewise() -> None:
    clock = Clock()
    parts = [stream(event("p1")), Answer(0), stream(event("p2", "COMPLETED"), END), NO_STREAM]
    with serving(RUNNING, COMPLETED, streams=parts) as script:
        async with AsyncQueueClient(
            script.url, retry=POLICY, sleep=clock.asleep, clock=clock
        ) as queue:
            told = [one.position async for one in queue.watch("a")]
            assert told == ["p1", "p2"]
            assert (await queue.wait("a")).state == "COMPLETED"
    assert len(script.listened) == 4
