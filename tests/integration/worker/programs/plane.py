"""Handlers that use all of their context, for worker processes of the tests."""

import asyncio
import json
import threading
from typing import Any

from pydantic import BaseModel

from queue_operator.domain.errors import PayloadTooLarge
from queue_operator.worker import Cancelled, JobContext, Worker

worker = Worker()


@worker.handler("resume-process", runs_in="process")
@worker.handler("resume")
def resume(ctx: JobContext) -> dict[str, Any]:
    """The first attempt stores where it is and then runs until it is killed."""
    before = ctx.last_checkpoint()
    if before is None:
        ctx.checkpoint(b"first")
        ctx.checkpoint(b"half")
        ctx.report_progress(50, "stored")
        ctx.cancelled.wait()
        raise RuntimeError("nobody killed us")
    return {"from": before.decode(), "attempt": ctx.attempt}


@worker.handler("resume-async")
async def resume_async(ctx: JobContext) -> dict[str, Any]:
    before = ctx.last_checkpoint()
    if before is None:
        await ctx.checkpoint(b"half")
        ctx.report_progress(50, "stored")
        await ctx.cancelled.wait_async()
        raise RuntimeError("nobody killed us")
    return {"from": before.decode(), "attempt": ctx.attempt}


class Page(BaseModel):
    number: int


@worker.handler("fan-out")
def fan_out(ctx: JobContext) -> list[str]:
    """The first attempt stops half-way: it fails, or waits to be killed."""
    pages = [ctx.spawn("page", Page(number=number)) for number in range(5)]
    if ctx.attempt == 1 and ctx.payload == b'"fail"':
        raise RuntimeError("half-way")
    if ctx.attempt == 1:
        ctx.report_progress(50, "half-way")
        ctx.cancelled.wait()
    return pages + [ctx.spawn("page", Page(number=number)) for number in range(5, 10)]


@worker.handler("fan-out-async")
async def fan_out_async(ctx: JobContext) -> list[str]:
    pages = await asyncio.gather(*(ctx.spawn("page", Page(number=n)) for n in range(5)))
    if ctx.attempt == 1 and ctx.payload == b'"fail"':
        raise RuntimeError("half-way")
    if ctx.attempt == 1:
        ctx.report_progress(50, "half-way")
        await ctx.cancelled.wait_async()
    return pages + [await ctx.spawn("page", Page(number=n)) for n in range(5, 10)]


@worker.handler("page")
def page(ctx: JobContext, what: Page) -> int:
    return what.number


async def _until_cancelled(ctx: JobContext, how: str) -> None:
    """By each of the calls at which a cancel is seen."""
    while how == "progress":
        ctx.report_progress(2)
        await ctx.cancelled.wait_async(0.02)
    while how == "checkpoint":
        await ctx.checkpoint(b"x")
        await ctx.cancelled.wait_async(0.02)
    while how == "poll" and not ctx.is_cancelled():
        await ctx.cancelled.wait_async(0.02)
    await ctx.cancelled.wait_async()


@worker.handler("cancel-async")
async def cancel_async(ctx: JobContext, how: str) -> str:
    ctx.report_progress(1, "running")
    try:
        await _until_cancelled(ctx, how)
    except asyncio.CancelledError:
        # A forced cancel; these two will not be stopped by it.
        if how not in ("complete", "fail"):
            raise
    return _end(ctx, how)


def _cancel_here(ctx: JobContext, how: str) -> str:
    ctx.report_progress(1, "running")
    while how == "progress":
        ctx.report_progress(2)
        ctx.cancelled.wait(0.02)
    while how == "checkpoint":
        ctx.checkpoint(b"x")
        ctx.cancelled.wait(0.02)
    while how == "poll" and not ctx.is_cancelled():
        ctx.cancelled.wait(0.02)
    ctx.cancelled.wait()
    return _end(ctx, how)


def _end(ctx: JobContext, how: str) -> str:
    if how == "complete":
        return "done"
    if how == "fail":
        raise ValueError("failed while it was being cancelled")
    raise Cancelled


@worker.handler("cancel-thread")
def cancel_thread(ctx: JobContext, how: str) -> str:
    return _cancel_here(ctx, how)


@worker.handler("cancel-process", runs_in="process", concurrency=8)
def cancel_process(ctx: JobContext, how: str) -> str:
    return _cancel_here(ctx, how)


@worker.handler("talk")
def talk(ctx: JobContext) -> None:
    for number in range(3):
        ctx.log("info", f"line {number}", number=number)
    if ctx.attempt == 1:
        raise RuntimeError("once more")


@worker.handler("talk-and-hang")
async def talk_and_hang(ctx: JobContext) -> None:
    ctx.log("warning", "still here")
    await ctx.cancelled.wait_async()


@worker.handler("ignores")
async def ignores(ctx: JobContext) -> None:
    """A cancel that is not forced is for the handler to see, and this one does not care."""
    ctx.report_progress(1, "running")
    await ctx.cancelled.wait_async()
    ctx.log("info", "ignored")
    await asyncio.get_running_loop().create_future()


@worker.handler("unserialisable")
async def unserialisable(ctx: JobContext, what: str) -> object:
    """Each is a value that no store can hold."""
    circle: list[object] = []
    circle.append(circle)
    values: dict[str, object] = {
        "object": object(),
        "circle": circle,
        "nan": float("nan"),
        "deep": json.loads("[" * 200 + "]" * 200),
        "large": "x" * (1024 * 1024 + 1),
        "keys": {("a", "tuple"): 1},
    }
    return values[what]


@worker.handler("block-the-loop")
async def block_the_loop(ctx: JobContext, seconds: float) -> int:
    """Nothing else on the loop of the handlers runs meanwhile."""
    threading.Event().wait(seconds)
    ctx.report_progress(100)
    return ctx.attempt


@worker.handler("large-checkpoint")
async def large_checkpoint(ctx: JobContext) -> int:
    """The largest that is taken, and one that is refused before it is sent."""
    await ctx.checkpoint(bytes(1024 * 1024))
    try:
        await ctx.checkpoint(bytes(5 * 1024 * 1024))
    except PayloadTooLarge as error:
        return error.size
    raise AssertionError("it was sent")
