"""Handlers of every fate, for a worker whose figures are read."""

from queue_operator.worker import Cancelled, JobContext, PermanentError, Worker

worker = Worker()


@worker.handler("good")
async def good(ctx: JobContext) -> int:
    return ctx.attempt


@worker.handler("in-a-process", runs_in="process")
def in_a_process(ctx: JobContext) -> int:
    return ctx.attempt


@worker.handler("second-time")
def second_time(ctx: JobContext) -> int:
    if ctx.attempt == 1:
        raise ValueError("the first time it never works")
    return ctx.attempt


@worker.handler("bad")
def bad(ctx: JobContext) -> None:
    raise PermanentError("no")


@worker.handler("waits")
async def waits(ctx: JobContext) -> None:
    ctx.report_progress(1, "waits")
    await ctx.cancelled.wait_async()
    raise Cancelled
