"""Whose frames a stored trace has."""

from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any

import pytest

from queue_operator.harness import WorkerHarness
from queue_operator.worker import CallNext, Depends, JobContext, Worker


def thing() -> Iterator[int]:
    yield 1


async def awaited() -> AsyncIterator[int]:
    yield 2


def fails() -> int:
    raise ValueError("x")


def plain(ctx: JobContext) -> None:
    raise ValueError("x")


async def coroutine(ctx: JobContext) -> None:
    raise ValueError("x")


def needing(ctx: JobContext, one: Annotated[int, Depends(thing)]) -> None:
    raise ValueError("x")


def awaiting(ctx: JobContext, one: Annotated[int, Depends(awaited)]) -> None:
    raise ValueError("x")


def unlucky(ctx: JobContext, one: Annotated[int, Depends(fails)]) -> None: ...


async def passing(ctx: JobContext, call_next: CallNext) -> Any:
    return await call_next(ctx)


async def turning(ctx: JobContext, call_next: CallNext) -> Any:
    try:
        return await call_next(ctx)
    except ValueError as error:
        raise KeyError("y") from error


def trace(function: Any, *middleware: Any) -> str:
    worker = Worker()
    worker.register("t", function)
    for one in middleware:
        worker.middleware(one)
    with WorkerHarness(worker) as harness:
        job_id = harness.submit("t", max_attempts=1)
        harness.run_until_idle()
        error = harness.job(job_id).error
        assert error is not None
        return error.stack_trace


@pytest.mark.parametrize("middleware", [(), (passing,)])
@pytest.mark.parametrize("function", [plain, coroutine, needing, awaiting])
def test_a_trace_begins_at_the_handler(function: Any, middleware: Any) -> None:
    told = trace(function, *middleware).splitlines()
    assert told[0] == "Traceback (most recent call last):"
    assert told[1].endswith(f"in {function.__name__}")
    assert [line for line in told if line.startswith("  File")] == [told[1]]


def test_a_trace_begins_at_the_dependency_that_failed() -> None:
    assert trace(unlucky).splitlines()[1].endswith("in fails")


def test_what_an_error_came_from_is_told_in_the_same_way() -> None:
    frames = [line for line in trace(plain, turning).splitlines() if line.startswith("  File")]
    assert [line.rpartition(" ")[2] for line in frames] == ["plain", "turning"]


def test_without_frames_of_the_user_the_message_stands_alone() -> None:
    def unstorable(ctx: JobContext) -> object:
        return object()

    told = trace(unstorable)
    assert told.startswith("queue_operator.worker.errors.PermanentError: the result, an object,")
