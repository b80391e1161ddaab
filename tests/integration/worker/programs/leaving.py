"""Handlers that a worker is stopped in the midst of."""

import asyncio

from queue_operator.worker import JobContext, Worker

worker = Worker()


@worker.handler("gated")
def gated(ctx: JobContext, payload: str) -> str:
    """Ends once somebody opens the pipe whose path it is given."""
    ctx.report_progress(1, "begun")
    with open(payload) as pipe:  # noqa: PTH123
        return pipe.read()


@worker.handler("endless")
async def endless(ctx: JobContext) -> None:
    """Ends by no word but a stop."""
    ctx.report_progress(1, "begun")
    await asyncio.get_running_loop().create_future()


@worker.handler("quick")
def quick(ctx: JobContext) -> str:
    return "done"
