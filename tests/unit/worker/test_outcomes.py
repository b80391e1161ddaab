from typing import Any

import pytest

from queue_operator.domain.errors import InvalidArgument
from queue_operator.domain.outcome import ErrorCategory
from queue_operator.wire.v1 import worker_pb2 as wire
from queue_operator.worker import Cancelled, PermanentError, Retry
from queue_operator.worker.outcomes import MAX_BATCH_BYTES, OutcomeBuffer, conclude, cut
from queue_operator.worker.runner import Failed, Stopped, ending_of, run_sync


def raised(error: BaseException) -> Failed:
    def deep() -> None:
        raise error

    try:
        deep()
    except BaseException as caught:
        ending = ending_of(caught)
    assert isinstance(ending, Failed)
    return ending


def test_any_exception_is_temporary_with_its_type_and_trace() -> None:
    error = raised(KeyError("name")).error
    assert (error.category, error.code) == (ErrorCategory.TEMPORARY, "KeyError")
    assert error.message == "'name'"
    assert "in deep" in error.stack_trace
    assert raised(ValueError()).error.message == "ValueError"


def test_a_retry_carries_its_delay() -> None:
    ending = raised(Retry("busy", after=1.5))
    assert ending.retry_after_s == 1.5
    assert (ending.error.category, ending.error.message) == (ErrorCategory.TEMPORARY, "busy")
    assert raised(Retry()).retry_after_s is None
    with pytest.raises(InvalidArgument, match="after"):
        Retry(after=-1)


def test_a_permanent_error_carries_its_code_and_context() -> None:
    error = raised(PermanentError("gone", code="NO_SUCH_USER", context={"user": "7"})).error
    assert (error.category, error.code) == (ErrorCategory.PERMANENT, "NO_SUCH_USER")
    assert error.context == {"user": "7"}


def test_cancelled_is_no_failure() -> None:
    assert ending_of(Cancelled()) == Stopped()


def test_a_handler_that_exits_has_failed(rig: Any) -> None:
    def leave(ctx: Any) -> None:
        raise SystemExit(3)

    run = rig.assign("a", "t1")
    object.__setattr__(run.spec, "function", leave)
    ending = run_sync(run)
    assert isinstance(ending, Failed)
    assert ending.error.code == "SystemExit"
    assert "run_sync" not in ending.error.stack_trace


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


def test_batches_hold_64_outcomes_in_order() -> None:
    buffer = OutcomeBuffer()
    for number in range(130):
        buffer.add(outcome(str(number)))
    batches = buffer.take_batches()
    assert [len(batch.outcomes) for batch in batches] == [64, 64, 2]
    assert [o.job_id for batch in batches for o in batch.outcomes] == [str(n) for n in range(130)]
    assert buffer.take_batches() == []
    assert len(buffer) == 130


def test_batches_stay_below_the_size_of_a_message() -> None:
    buffer = OutcomeBuffer()
    for number in range(10):
        buffer.add(outcome(str(number), size=1024 * 1024))
    batches = buffer.take_batches()
    assert sum(len(batch.outcomes) for batch in batches) == 10
    assert all(batch.ByteSize() <= MAX_BATCH_BYTES for batch in batches)
