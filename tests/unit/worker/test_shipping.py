"""Log lines from a handler to the session, without I/O."""

import threading
from datetime import UTC, datetime
from typing import Any

import pytest

from queue_operator.wire.convert import logs_from_wire
from queue_operator.wire.v1 import worker_pb2 as wire
from queue_operator.worker.link import Unconnected
from queue_operator.worker.runner import Completed
from queue_operator.worker.shipping import (
    BYTES_PER_MESSAGE,
    MAX_BYTES,
    MAX_FIELDS_BYTES,
    MAX_LINES,
    MAX_MESSAGE_BYTES,
    line,
)
from queue_operator.worker.testing import job_context


def sent(rig: Any) -> list[wire.LogLine]:
    return [one for batch in rig.sent("logs") for one in batch.lines]


def test_a_line_says_whose_it_is(rig: Any) -> None:
    before = datetime.now(UTC)
    rig.assign("a", "t1").context.log("info", "hello", number=7)
    [one] = sent(rig)
    assert (one.job_id, one.token, one.attempt, one.number) == ("a", "t1", 1, 1)
    assert (one.level, one.message, one.fields) == ("INFO", "hello", '{"number":7}')
    assert before <= one.at.ToDatetime(tzinfo=UTC) <= datetime.now(UTC)
    assert sent(rig) == []


def test_lines_are_numbered_by_attempt(rig: Any, say: Any) -> None:
    run, other = rig.assign("a", "t1"), rig.assign("b", "t2")
    for context in (run.context, other.context, run.context):
        context.log("info", "x")
    rig.session.receive(say.assigned(say.assignment("a", "t3")))
    run.context.log("info", "x")
    assert [(one.job_id, one.token, one.number) for one in sent(rig)] == [
        ("a", "t1", 1),
        ("b", "t2", 1),
        ("a", "t1", 2),
        ("a", "t3", 1),
    ]


def test_the_last_lines_go_before_the_outcome(rig: Any) -> None:
    run = rig.assign("a", "t1")
    run.context.log("info", "done")
    rig.session.finished(run, Completed(b"", ""))
    kinds = [message.WhichOneof("message") for message in rig.session.take_messages()]
    assert kinds == ["logs", "outcomes"]


def test_lines_by_themselves_are_sent_soon_and_together(rig: Any) -> None:
    context = rig.assign("a", "t1").context
    wakes = rig.wakes
    for _ in range(100):
        context.log("info", "x")
    assert rig.wakes == wakes
    [timer] = rig.timers
    timer.action()
    assert rig.wakes == wakes + 1
    assert len(sent(rig)) == 100
    context.log("info", "x")
    assert len(rig.timers) == 2


def test_the_oldest_lines_are_dropped_and_their_numbers_tell(rig: Any) -> None:
    context = rig.assign("a", "t1").context
    for _ in range(MAX_LINES + 5):
        context.log("info", "x")
    numbers = [one.number for one in sent(rig)]
    assert numbers == list(range(6, MAX_LINES + 6))


def test_large_lines_are_bounded_by_their_size(rig: Any) -> None:
    context = rig.assign("a", "t1").context
    for _ in range(2000):
        context.log("info", "x" * MAX_MESSAGE_BYTES)
    batches = rig.sent("logs")
    assert sum(batch.ByteSize() for batch in batches) <= MAX_BYTES
    assert max(batch.ByteSize() for batch in batches) <= BYTES_PER_MESSAGE
    assert batches[-1].lines[-1].number == 2000


def test_handlers_on_many_threads_lose_no_line(rig: Any) -> None:
    contexts = [rig.assign(f"job-{n}", "t").context for n in range(8)]

    def talk(context: Any) -> None:
        for _ in range(200):
            context.log("info", "x")

    threads = [threading.Thread(target=talk, args=(context,)) for context in contexts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines = sent(rig)
    for n in range(8):
        mine = [one.number for one in lines if one.job_id == f"job-{n}"]
        assert mine == list(range(1, 201))


class Unprintable:
    def __str__(self) -> str:
        raise ValueError("no text")


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({}, "{}"),
        ({"a": 1, "b": [None, True, "x"]}, '{"a":1,"b":[null,true,"x"]}'),
        ({"at": datetime(2026, 1, 1, tzinfo=UTC)}, '{"at":"2026-01-01T00:00:00Z"}'),
        ({"nan": float("nan")}, '{"nan":"NaN"}'),
        ({"where": ValueError("x")}, '{"where":"x"}'),
        ({"data": b"x"}, '{"data":"x"}'),
    ],
)
def test_fields_are_shipped_as_json(fields: dict[str, Any], text: str) -> None:
    assert line("INFO", "x", fields).fields == text


@pytest.mark.parametrize(
    "fields",
    [{"data": b"\xff\xfe"}, {"odd": Unprintable()}, {"half": "\ud800"}, {"long": "x" * 100_000}],
)
def test_fields_that_cannot_be_shipped_do_not_fail_the_job(fields: dict[str, Any]) -> None:
    shipped = line("INFO", "x", fields).fields
    assert 2 < len(shipped) <= MAX_FIELDS_BYTES
    shipped.encode()


def test_a_message_is_cut_and_made_storable() -> None:
    said = line("INFO", "a\x00b\ud800" + "\N{SNOWMAN}" * 10_000, {})
    assert said.message.startswith("a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}")
    assert len(said.message.encode()) <= MAX_MESSAGE_BYTES


def test_a_level_that_is_a_number_is_named() -> None:
    link = Unconnected()
    context = job_context(_link=link)
    context.log(40, "x")
    context.log(15, "x")
    assert [said.level for said in link.lines] == ["ERROR", "Level 15"]


def test_the_server_leaves_out_what_is_no_line() -> None:
    good = wire.LogLine(job_id="a", token="t", number=1, level="INFO", message="x\x00")
    batch = wire.LogBatch(
        lines=[
            good,
            wire.LogLine(job_id="", token="t", number=1),
            wire.LogLine(job_id="a\x00", token="t", number=1),
            wire.LogLine(job_id="a" * 256, token="t", number=1),
            wire.LogLine(job_id="a", token="t", number=0),
            wire.LogLine(job_id="a", token="t", number=2**64 - 1),
            wire.LogLine(job_id="b", token="t", number=1, fields="x" * 100_000),
        ]
    )
    batch.lines[-1].at.seconds = 2**60
    one, other = logs_from_wire(batch, namespace="team-a")
    assert (one.job_id, one.token, one.namespace, len(one.lines)) == ("a", "t", "team-a", 1)
    assert (one.lines[0].message, one.lines[0].fields) == ("x\N{REPLACEMENT CHARACTER}", "{}")
    assert (other.job_id, other.lines[0].fields, other.lines[0].at.year) == ("b", "{}", 1970)
