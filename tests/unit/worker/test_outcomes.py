import asyncio
from typing import Any

import pytest

from queue_operator.domain.errors import InvalidArgument
from queue_operator.domain.outcome import ErrorCategory
from queue_operator.domain.texts import cut
from queue_operator.testing.clauses import proves
from queue_operator.wire.v1 import worker_pb2 as wire
from queue_operator.worker import Cancelled, PermanentError, Retry
from queue_operator.worker.handlers import Place
from queue_operator.worker.injection import Provider
from queue_operator.worker.outcomes import MAX_BATCH, MAX_BATCH_BYTES, OutcomeBuffer, conclude
from queue_operator.worker.runner import Failed, Runner, Stopped, ending_of

RUNNER = Runner((), Provider())


def raised(error: BaseException) -> Failed:
    def deep() -> None:
        raise error

    try:
        deep()
    except BaseException as caught:
        ending = ending_of(caught)
    assert isinstance(ending, Failed)
    return ending


@proves("external-api.HandlerRegistration.expect.12")
def test_any_exception_is_temporary_with_its_type_and_trace() -> None:
    error = raised(KeyError("name")).error
    assert (error.category, error.code) == (ErrorCategory.TEMPORARY, "KeyError")
    assert error.message == "'name'"
    assert "in deep" in error.stack_trace
    assert raised(ValueError()).error.message == "ValueError"


@proves("external-api.HandlerRegistration.expect.11")
def test_a_retry_carries_its_delay() -> None:
    ending = raised(Retry("busy", after=1.5))
    assert ending.retry_after_s == 1.5
    assert (ending.error.category, ending.error.message) == (ErrorCategory.TEMPORARY, "busy")
    assert raised(Retry()).retry_after_s is None
    with pytest.raises(InvalidArgument, match="after: 'soon' is no duration: write seconds"):
        Retry(after="soon")


@proves("external-api.HandlerRegistration.expect.11")
def test_a_permanent_error_carries_its_code_and_context() -> None:
    error = raised(
        PermanentError("gone", code="NO_SUCH_USER", context={"user": 7, "mail": None})
    ).error
    assert (error.category, error.code) == (ErrorCategory.PERMANENT, "NO_SUCH_USER")
    assert error.context == {"user": "7"}


@proves("external-api.HandlerRegistration.expect.11")
def test_cancelled_is_no_failure() -> None:
    assert ending_of(Cancelled()) == Stopped()


def test_a_handler_that_exits_has_failed(rig: Any) -> None:
    def leave(ctx: Any) -> None:
        raise SystemExit(3)

    run = rig.assign("a", "t1")
    object.__setattr__(run.spec, "function", leave)
    ending = RUNNER.run_in_thread(run)
    assert isinstance(ending, Failed)
    assert ending.error.code == "SystemExit"
    assert "runner.py" not in ending.error.stack_trace


@proves("external-api.HandlerRegistration.expect.12")
def test_long_texts_are_cut_and_unstorable_characters_replaced(rig: Any) -> None:
    ending = raised(ValueError("é" * 10_000 + "\x00"))
    outcome = conclude(rig.assign("a", "t1"), ending)
    assert outcome is not None
    assert len(outcome.error.message.encode()) == 8 * 1024
    assert len(outcome.error.stack_trace.encode()) <= 64 * 1024
    short = conclude(rig.assign("b", "t1"), raised(ValueError("a\x00b\ud800c")))
    assert short is not None
    assert short.error.message == "a\ufffdb\ufffdc"


def test_the_end_of_a_long_trace_is_kept() -> None:
    assert cut("aé" * 3, 4) == "aéa"
    assert cut("aéb" * 3, 3, keep_end=True) == "éb"


def outcome(job_id: str, size: int = 0) -> wire.Outcome:
    return wire.Outcome(
        job_id=job_id, token="t", kind=wire.OUTCOME_KIND_COMPLETE, result=b"x" * size
    )


def test_batches_are_full_and_in_order() -> None:
    buffer = OutcomeBuffer()
    for number in range(2 * MAX_BATCH + 2):
        buffer.add(outcome(str(number)))
    batches = buffer.take_batches()
    assert [len(batch.outcomes) for batch in batches] == [MAX_BATCH, MAX_BATCH, 2]
    assert [o.job_id for batch in batches for o in batch.outcomes] == [
        str(n) for n in range(2 * MAX_BATCH + 2)
    ]
    assert buffer.take_batches() == []
    assert len(buffer) == 2 * MAX_BATCH + 2


def test_batches_stay_below_the_size_of_a_message() -> None:
    buffer = OutcomeBuffer()
    for number in range(10):
        buffer.add(outcome(str(number), size=1024 * 1024))
    batches = buffer.take_batches()
    assert sum(len(batch.outcomes) for batch in batches) == 10
    assert all(batch.ByteSize() <= MAX_BATCH_BYTES for batch in batches)


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


def test_an_exception_without_a_text_is_a_failure_all_the_same(rig: Any) -> None:
    def fail(ctx: Any) -> None:
        raise Unspeakable

    async def fail_async(ctx: Any) -> None:
        raise Unspeakable

    run = rig.assign("a", "t1")
    object.__setattr__(run.spec, "function", fail)
    ending = RUNNER.run_in_thread(run)
    assert isinstance(ending, Failed)
    assert (ending.error.code, "ValueError" in ending.error.message) == ("Unspeakable", True)
    object.__setattr__(run.spec, "function", fail_async)
    object.__setattr__(run.spec, "place", Place.LOOP)
    ending = asyncio.run(RUNNER.run(run))
    assert isinstance(ending, Failed)
    assert ending.error.code == "Unspeakable"


def test_no_failure_is_too_large_for_a_message(rig: Any) -> None:
    context = {f"{n:04}" * 1000: "x" * 100_000 for n in range(1000)}
    error = raised(PermanentError("m" * 10_000_000, code="c" * 10_000_000, context=context))
    outcome = conclude(rig.assign("a", "t1"), error)
    assert outcome is not None
    assert outcome.ByteSize() < 300 * 1024
    assert len(outcome.error.context) == 64


@pytest.mark.parametrize("after", [-1, float("inf"), float("nan"), 1e20])
def test_a_retry_needs_a_delay_that_can_be_waited_for(after: float) -> None:
    with pytest.raises(InvalidArgument, match="after"):
        Retry(after=after)
