import pytest
from pydantic import BaseModel

from queue_operator.testing.clauses import proves
from queue_operator.worker import Cancelled, InvalidArgument, JobContext, PermanentError, Worker
from queue_operator.worker.testing import job_context, run_handler, run_handler_async

worker = Worker()


class Sum(BaseModel):
    a: int
    b: int


@worker.handler("sum")
async def add(ctx: JobContext, payload: Sum) -> int:
    return payload.a + payload.b


@worker.handler("attempt")
def attempt(ctx: JobContext) -> int:
    ctx.raise_if_cancelled()
    return ctx.attempt


@worker.handler("raw")
def raw(ctx: JobContext, payload: bytes) -> object:
    return payload if payload else object()


@proves("external-api.WorkerProcess.expect.9")
def test_payloads_may_be_models_values_or_bytes() -> None:
    assert run_handler(worker, "sum", Sum(a=1, b=2)) == 3
    assert run_handler(worker, "sum", {"a": 1, "b": 2}) == 3
    assert run_handler(worker, "sum", b'{"a": 1, "b": 2}') == 3
    assert run_handler(worker, "raw", b"\x00") == b"\x00"


@proves("external-api.WorkerProcess.expect.9")
def test_the_context_can_be_given() -> None:
    assert run_handler(worker, "attempt", attempt=3) == 3
    context = job_context()
    context.cancelled.set()
    with pytest.raises(Cancelled):
        run_handler(worker, "attempt", context=context)


def test_a_checkpoint_of_an_earlier_attempt_can_be_given() -> None:
    resuming = Worker()

    @resuming.handler("resumes")
    def resumes(ctx: JobContext) -> bytes | None:
        return ctx.last_checkpoint()

    assert run_handler(resuming, "resumes", attempt=2, last_checkpoint=b"half") == b"half"
    assert run_handler(resuming, "resumes", context=job_context(last_checkpoint=b"all")) == b"all"
    assert run_handler(resuming, "resumes") is None


async def test_handlers_run_in_coroutine_tests() -> None:
    assert await run_handler_async(worker, "sum", {"a": 1, "b": 2}) == 3
    assert await run_handler_async(worker, "attempt", attempt=2) == 2


@proves("external-api.WorkerProcess.expect.9")
def test_what_would_fail_in_the_queue_fails_here() -> None:
    with pytest.raises(PermanentError) as invalid:
        run_handler(worker, "sum", {"a": "x", "b": 2})
    assert invalid.value.code == "INVALID_PAYLOAD"
    with pytest.raises(PermanentError) as unstorable:
        run_handler(worker, "raw", b"")
    assert unstorable.value.code == "RESULT_NOT_STORABLE"
    with pytest.raises(InvalidArgument, match=r"no handler for .absent.; its types: attempt, raw"):
        run_handler(worker, "absent")
