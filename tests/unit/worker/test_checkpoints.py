"""Checkpoints from a handler to the session and back, without I/O."""

import asyncio
import threading
from concurrent.futures import Future
from typing import Any

import pytest

from queue_operator.domain.errors import InvalidArgument, PayloadTooLarge, StaleLease
from queue_operator.wire.v1 import worker_pb2 as wire
from queue_operator.worker import Cancelled
from queue_operator.worker.context import JobContext
from queue_operator.worker.link import SendLimits, Unconnected
from queue_operator.worker.runner import Completed
from queue_operator.worker.testing import job_context


def asked(rig: Any, run: Any, data: bytes) -> "Future[None]":
    """What a handler that stores `data` waits for."""
    future: Future[None] = run.context._link.checkpoint(data)
    return future


def sent(rig: Any) -> list[wire.Checkpoint]:
    return [one for batch in rig.sent("checkpoints") for one in batch.checkpoints]


def answer(rig: Any, one: wire.Checkpoint, **fields: Any) -> None:
    ack = wire.CheckpointAck(job_id=one.job_id, token=one.token, number=one.number, **fields)
    rig.session.receive(wire.ServerMessage(checkpoint_acks=wire.CheckpointAcks(acks=[ack])))


def test_a_checkpoint_is_stored_when_the_server_says_so(rig: Any) -> None:
    run = rig.assign("a", "t1")
    done = asked(rig, run, b"half")
    [one] = sent(rig)
    assert (one.job_id, one.token, one.number, one.data) == ("a", "t1", 1, b"half")
    assert not done.done()
    answer(rig, one)
    assert done.result(0) is None
    rig.session.disconnected()
    assert sent(rig) == []


def test_the_newest_is_sent_and_answers_for_those_before(rig: Any) -> None:
    run = rig.assign("a", "t1")
    first = asked(rig, run, b"1")
    [one] = sent(rig)
    second, third = asked(rig, run, b"2"), asked(rig, run, b"3")
    answer(rig, one)
    assert first.done()
    assert not second.done()
    [newest] = sent(rig)
    assert (newest.number, newest.data) == (3, b"3")
    answer(rig, newest)
    assert second.done()
    assert third.done()


def test_what_was_not_answered_is_sent_again(rig: Any) -> None:
    run = rig.assign("a", "t1")
    asked(rig, run, b"1")
    first = sent(rig)
    rig.session.disconnected()
    assert sent(rig) == first
    for _ in range(2):
        rig.session.heartbeat()
        assert sent(rig) == []
    rig.session.heartbeat()
    assert sent(rig) == first
    answer(rig, first[0])
    for _ in range(9):
        rig.session.heartbeat()
    assert sent(rig) == []


def test_checkpoints_fit_into_messages(rig: Any) -> None:
    for number in range(4):
        asked(rig, rig.assign(f"job-{number}", "t"), bytes(1024 * 1024))
    batches = rig.sent("checkpoints")
    assert [len(batch.checkpoints) for batch in batches] == [3, 1]


def test_a_new_token_takes_the_checkpoint_along(rig: Any, say: Any) -> None:
    run = rig.assign("a", "t1")
    done = asked(rig, run, b"1")
    [old] = sent(rig)
    rig.session.receive(say.assigned(say.assignment("a", "t2")))
    [new] = sent(rig)
    assert (new.token, new.data) == ("t2", b"1")
    answer(rig, old, error_code=StaleLease.code)
    assert not done.done()
    [again] = sent(rig)
    answer(rig, again)
    assert done.result(0) is None


def test_a_refusal_is_told(rig: Any) -> None:
    run = rig.assign("a", "t1")
    stale = asked(rig, run, b"1")
    answer(rig, sent(rig)[0], error_code=StaleLease.code, error_message="no")
    assert isinstance(stale.exception(0), StaleLease)
    large = asked(rig, run, b"2")
    answer(rig, sent(rig)[0], error_code=PayloadTooLarge.code, error_message="checkpoint: 9 bytes")
    with pytest.raises(InvalidArgument, match=r"^checkpoint: 9 bytes$"):
        large.result(0)
    odd = asked(rig, run, b"3")
    answer(rig, sent(rig)[0], error_code="INTERNAL_ERROR", error_message="the store is on fire")
    with pytest.raises(Exception, match="the store is on fire"):
        odd.result(0)


def test_a_cancel_is_seen_in_the_answer(rig: Any) -> None:
    run = rig.assign("a", "t1")
    done = asked(rig, run, b"1")
    answer(rig, sent(rig)[0], cancel_requested=True, cancel_forced=True)
    assert run.context.is_cancelled()
    assert rig.interrupted == [run]
    assert done.done()
    [receipts] = rig.sent("cancel_receipts")
    assert [(one.job_id, one.token) for one in receipts.received] == [("a", "t1")]


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (wire.LEASE_STATUS_TAKEN_OVER, StaleLease),
        (wire.LEASE_STATUS_ENDED, StaleLease),
    ],
)
def test_whoever_waits_hears_that_the_job_is_gone(
    rig: Any, say: Any, status: Any, error: type[Exception]
) -> None:
    run = rig.assign("a", "t1")
    done = asked(rig, run, b"1")
    rig.session.receive(say.lease("a", "t1", status))
    assert isinstance(done.exception(0), error)
    assert isinstance(asked(rig, run, b"2").exception(0), error)
    assert sent(rig) == []


def test_whoever_waits_hears_of_a_timeout_and_a_hand_back(rig: Any) -> None:
    slow = rig.assign("a", "t1", timeout_s=1)
    waiting = asked(rig, slow, b"1")
    rig.timers[0].action()
    assert isinstance(waiting.exception(0), Cancelled)
    waiting = asked(rig, rig.assign("b", "t2"), b"1")
    rig.session.hand_back()
    assert isinstance(waiting.exception(0), Cancelled)


def test_a_lost_lease_does_not_stop_checkpoints(rig: Any, say: Any) -> None:
    """Nobody has claimed the job: the state is of use to whoever will."""
    run = rig.assign("a", "t1")
    rig.session.receive(say.lease("a", "t1", wire.LEASE_STATUS_LOST))
    done = asked(rig, run, b"1")
    answer(rig, sent(rig)[0])
    assert done.result(0) is None


def test_nobody_waits_for_a_handler_that_has_ended(rig: Any) -> None:
    run = rig.assign("a", "t1")
    left_behind = asked(rig, run, b"1")
    rig.session.finished(run, Completed(b"", ""))
    assert isinstance(left_behind.exception(0), StaleLease)
    assert sent(rig) == []
    answer(rig, wire.Checkpoint(job_id="a", token="t1", number=1))


def test_the_checkpoint_before_comes_with_the_job(rig: Any) -> None:
    assert rig.assign("a", "t1").context.last_checkpoint() is None
    assert rig.assign("b", "t2", checkpoint=b"").context.last_checkpoint() == b""
    assert rig.assign("c", "t3", checkpoint=b"half").context.last_checkpoint() == b"half"


def test_the_server_says_what_it_takes(rig: Any) -> None:
    rig.session.receive(
        wire.ServerMessage(welcome=wire.Welcome(max_checkpoint_bytes=4, max_payload_bytes=5))
    )
    with pytest.raises(PayloadTooLarge) as refused:
        rig.assign("a", "t1").context.checkpoint(b"12345")
    assert (refused.value.field, refused.value.size, refused.value.limit) == ("checkpoint", 5, 4)
    assert sent(rig) == []


class Slow(Unconnected):
    """Answers when the test says so."""

    def checkpoint(self, data: bytes) -> "Future[None]":
        self.checkpoints.append(data)
        self.asked: Future[None] = Future()
        return self.asked


def test_a_function_waits_until_its_state_is_stored() -> None:
    link = Slow()
    context = job_context(_link=link)
    going_on = threading.Event()

    def handler() -> None:
        context.checkpoint(bytearray(b"half"))
        going_on.set()

    thread = threading.Thread(target=handler)
    thread.start()
    while not link.checkpoints:
        pass
    assert not going_on.is_set()
    link.asked.set_result(None)
    thread.join()
    assert going_on.is_set()
    assert link.checkpoints == [b"half"]


async def test_a_coroutine_awaits_it() -> None:
    link = Slow()
    waiting = asyncio.ensure_future(job_context(_link=link).checkpoint(b"half"))
    await asyncio.sleep(0)
    assert link.checkpoints == [b"half"]
    assert not waiting.done()
    link.asked.set_result(None)
    await waiting


def stores(context: JobContext, *, in_loop: bool) -> None:
    async def handler() -> None:
        await context.checkpoint(b"x")

    if in_loop:
        asyncio.run(handler())
    else:
        context.checkpoint(b"x")


@pytest.mark.parametrize("in_loop", [False, True])
def test_a_cancel_is_seen_at_the_next_checkpoint(in_loop: bool) -> None:
    link = Unconnected()
    context = job_context(_link=link)
    context.cancelled.set()
    with pytest.raises(Cancelled):
        stores(context, in_loop=in_loop)
    assert link.checkpoints == []


@pytest.mark.parametrize("in_loop", [False, True])
def test_a_cancel_that_comes_with_the_answer_is_seen_there(in_loop: bool) -> None:
    class Cancelling(Unconnected):
        def checkpoint(self, data: bytes) -> "Future[None]":
            context.cancelled.set()
            return super().checkpoint(data)

    context = job_context(_link=Cancelling())
    with pytest.raises(Cancelled):
        stores(context, in_loop=in_loop)


def test_only_bytes_are_a_checkpoint() -> None:
    with pytest.raises(InvalidArgument, match="checkpoint"):
        job_context().checkpoint("text")  # type: ignore[arg-type]
    with pytest.raises(PayloadTooLarge):
        job_context(_limits=SendLimits(checkpoint_bytes=1)).checkpoint(b"12")


def test_batches_keep_below_what_the_server_reads(rig: Any) -> None:
    """Each of its items would be taken, so the batch must be too."""
    rig.session.receive(wire.ServerMessage(welcome=wire.Welcome(max_message_bytes=4000)))
    runs = [rig.assign(f"job-{number}", "t") for number in range(8)]
    for run in runs:
        asked(rig, run, bytes(1000))
        run.context._link.spawn(None, wire.ChildJob(type="child", payload=bytes(1000)))
        rig.session.finished(rig.assign(f"done-{run.job_id}", "t"), Completed(bytes(1000), "x"))
    messages = rig.session.take_messages()
    kinds = [message.WhichOneof("message") for message in messages]
    assert {kind: kinds.count(kind) for kind in ("checkpoints", "spawns", "outcomes")} == {
        "checkpoints": 3,
        "spawns": 4,
        "outcomes": 4,
    }
    assert max(message.ByteSize() for message in messages) <= 4000
