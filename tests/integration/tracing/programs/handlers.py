"""Handlers that say which span they are in."""

import sys
from typing import Any

from queue_operator.worker import JobContext, PermanentError, Worker

worker = Worker()


def _here() -> dict[str, Any]:
    """What any library for OpenTelemetry finds, and whether it was imported at all."""
    api = sys.modules.get("opentelemetry.trace")
    if api is None:
        return {"imported": False}
    with api.get_tracer("handlers").start_as_current_span("work") as span:
        context = span.get_span_context()
    return {"imported": True, "trace": f"{context.trace_id:032x}"}


@worker.handler("async")
async def on_the_loop(ctx: JobContext) -> dict[str, Any]:
    child = await ctx.spawn("thread")
    return _here() | {"child": child}


@worker.handler("thread")
def in_a_thread(ctx: JobContext) -> dict[str, Any]:
    ctx.log("info", "here I am")
    return _here() | {"given": ctx.traceparent}


@worker.handler("process", runs_in="process")
def in_a_process(ctx: JobContext) -> dict[str, Any]:
    return _here() | {"child": ctx.spawn("thread")}


@worker.handler("wrong")
async def wrong(ctx: JobContext) -> None:
    raise PermanentError("this never works", code="NEVER")
