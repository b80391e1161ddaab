"""One chain around every handler, whatever it runs in."""

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from queue_operator.testing.clauses import proves
from queue_operator.wire.v1 import worker_pb2 as wire
from queue_operator.worker import (
    CallNext,
    Cancelled,
    InvalidHandler,
    JobContext,
    PermanentError,
    Retry,
    Worker,
)
from queue_operator.worker.testing import run_handler


async def in_loop(ctx: JobContext, payload: dict[str, int]) -> dict[str, Any]:
    return {"got": payload, "tag": ctx.tags.get("tag")}


def in_thread(ctx: JobContext, payload: dict[str, int]) -> dict[str, Any]:
    assert threading.current_thread().name != "async-handlers"
    return {"got": payload, "tag": ctx.tags.get("tag")}


both = pytest.mark.parametrize("handler", [in_loop, in_thread])


@both
@proves("external-api.HandlerRegistration.expect.9")
def test_the_first_registered_is_outermost_and_may_change_both_ends(
    handler: Callable[..., Any],
) -> None:
    worker = Worker()
    seen: list[str] = []

    @worker.middleware
    async def outer(ctx: JobContext, call_next: CallNext) -> Any:
        seen.append("outer in")
        result = await call_next(replace(ctx, tags={"tag": "set outside"}))
        seen.append("outer out")
        return result | {"outer": True}

    # Registered after a handler: it counts for all.
    worker.handler("t")(handler)

    @worker.middleware
    async def inner(ctx: JobContext, call_next: CallNext) -> Any:
        seen.append(f"inner in {ctx.tags['tag']}")
        result = await call_next(ctx)
        seen.append(f"inner out {result['got']}")
        result["inner"] = True
        return result

    given = {"got": {"a": 1}, "tag": "set outside", "inner": True, "outer": True}
    assert run_handler(worker, "t", {"a": 1}) == given
    assert seen == ["outer in", "inner in set outside", "inner out {'a': 1}", "outer out"]


@both
@proves("external-api.HandlerRegistration.expect.9")
def test_it_sees_what_is_wrong_with_payload_and_result(handler: Callable[..., Any]) -> None:
    worker = Worker()
    worker.handler("t")(handler)
    worker.handler("unstorable")(lambda ctx: object())
    seen: list[str] = []

    @worker.middleware
    async def watch(ctx: JobContext, call_next: CallNext) -> Any:
        try:
            return await call_next(ctx)
        except PermanentError as error:
            seen.append(error.code)
            return {"covered": True}

    assert run_handler(worker, "t", {"a": "x"}) == {"covered": True}
    assert run_handler(worker, "unstorable") == {"covered": True}
    assert seen == ["INVALID_PAYLOAD", "RESULT_NOT_STORABLE"]


def test_what_it_returns_is_held_to_the_annotation() -> None:
    worker = Worker()

    @worker.handler("t")
    async def handler(ctx: JobContext) -> int:
        return 1

    @worker.middleware
    async def spoil(ctx: JobContext, call_next: CallNext) -> Any:
        return f"number {await call_next(ctx)}"

    with pytest.raises(PermanentError) as caught:
        run_handler(worker, "t")
    assert caught.value.code == "INVALID_RESULT"


@proves("external-api.HandlerRegistration.expect.9")
def test_in_a_worker_it_means_what_it_raises(
    worker_with: Callable[..., Any], server: Any, run: Any, say: Any
) -> None:
    def plain(ctx: JobContext) -> Any:
        return threading.current_thread().name

    async def coroutine(ctx: JobContext) -> Any:
        return threading.current_thread().name

    async def judge(ctx: JobContext, call_next: CallNext) -> Any:
        if "retry" in ctx.tags:
            raise Retry("not now", after=7)
        if "never" in ctx.tags:
            raise PermanentError("no", code="NEVER")
        if "stop" in ctx.tags:
            await ctx.cancelled.wait_async()
            raise Cancelled
        return [threading.current_thread().name, await call_next(ctx)]

    worker = worker_with(judge, plain=plain, coroutine=coroutine)
    run(worker)
    connection = server.accept()
    for kind in ("plain", "coroutine"):
        jobs = [
            say.assignment(f"{kind}-ok", "t", kind),
            say.assignment(f"{kind}-retry", "t", kind, tags=["retry"]),
            say.assignment(f"{kind}-never", "t", kind, tags=["never"]),
            say.assignment(f"{kind}-stop", "t", kind, tags=["stop"]),
        ]
        connection.send(say.assigned(*jobs), say.cancel(f"{kind}-stop", "t"))
    by_job = {outcome.job_id: outcome for outcome in connection.settle(8)}
    assert by_job["coroutine-ok"].result == b'["async-handlers","async-handlers"]'
    assert by_job["plain-ok"].result.startswith(b'["async-handlers","handler')
    for kind in ("plain", "coroutine"):
        assert by_job[f"{kind}-retry"].retry_after.seconds == 7
        assert by_job[f"{kind}-never"].error.code == "NEVER"
        assert "test_middleware.py" in by_job[f"{kind}-never"].error.stack_trace
        assert by_job[f"{kind}-stop"].kind == wire.OUTCOME_KIND_ACK_EXECUTING


def test_a_thread_within_it_is_not_abandoned_by_a_forced_cancel(
    worker_with: Callable[..., Any], server: Any, run: Any, say: Any
) -> None:
    """It cannot be stopped: until it ends its job keeps its place."""
    gate = threading.Event()

    def stubborn(ctx: JobContext) -> str:
        ctx.report_progress(1)
        ctx.cancelled.wait()
        gate.wait()
        return "finished"

    async def through(ctx: JobContext, call_next: CallNext) -> Any:
        return await call_next(ctx)

    run(worker_with(through, stubborn=stubborn, quick=lambda ctx: None))
    connection = server.accept()
    connection.send(say.assigned(say.assignment("a", "t1", "stubborn")))
    connection.next("progress")
    connection.send(say.cancel("a", "t1", force=True))
    connection.send(say.assigned(say.assignment("b", "t2", "quick")))
    assert [outcome.job_id for outcome in connection.settle(1)] == ["b"]
    gate.set()
    (outcome,) = connection.settle(1)
    assert (outcome.kind, outcome.result) == (wire.OUTCOME_KIND_COMPLETE, b'"finished"')


@pytest.mark.parametrize("function", [lambda ctx, call_next: None, None])
def test_only_coroutine_functions_will_do(function: Any) -> None:
    with pytest.raises(InvalidHandler, match="async def"):
        Worker().middleware(function)


def test_an_object_that_is_called_as_a_coroutine_function_will_do() -> None:
    class Adding:
        async def __call__(self, ctx: JobContext, call_next: CallNext) -> Any:
            return [*await call_next(ctx), "added"]

    worker = Worker()
    worker.middleware(Adding())
    worker.handler("t")(lambda ctx: ["handled"])
    assert run_handler(worker, "t") == ["handled", "added"]


def test_it_must_take_the_context_and_the_next() -> None:
    async def lonely(ctx: JobContext) -> None: ...

    with pytest.raises(InvalidHandler, match=r"\(ctx, call_next\)"):
        Worker().middleware(lonely)  # type: ignore[type-var]
