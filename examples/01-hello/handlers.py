"""The handlers of the demo: one for each way that a job can go."""

import os
import socket
from typing import Annotated

from pydantic import BaseModel, Field

from queue_operator.worker import Cancelled, JobContext, Worker

worker = Worker()

Seconds = Annotated[float, Field(ge=0, le=86_400)]


class Greeting(BaseModel):
    name: str = Field(min_length=1)


class Flaky(BaseModel):
    fail_times: int = Field(1, ge=0)


class Lasting(BaseModel):
    seconds: Seconds = 60.0


@worker.handler("hello", timeout=30)
async def hello(ctx: JobContext, payload: Greeting) -> dict[str, str]:
    ctx.log("info", "greeting", name=payload.name)
    return {"greeting": f"Hello, {payload.name}!"}


@worker.handler("flaky")
async def flaky(ctx: JobContext, payload: Flaky) -> dict[str, int]:
    """Fails on its first `fail_times` attempts, then completes."""
    if ctx.attempt <= payload.fail_times:
        raise RuntimeError(f"attempt {ctx.attempt} of {payload.fail_times} that fail")
    return {"attempt": ctx.attempt}


@worker.handler("broken")
async def broken(ctx: JobContext) -> None:
    """Never works, so it ends as a dead letter."""
    raise ValueError(f"broken for good, at attempt {ctx.attempt}")


@worker.handler("long")
async def long(ctx: JobContext, payload: Lasting) -> dict[str, float]:
    """Takes `seconds`, reports progress, and stops when it is cancelled."""
    await wait(ctx, payload.seconds)
    return {"seconds": payload.seconds}


async def wait(ctx: JobContext, seconds: float, steps: int = 20) -> None:
    for step in range(steps):
        ctx.report_progress(100 * step // steps, f"step {step} of {steps}")
        if await ctx.cancelled.wait_async(seconds / steps):
            raise Cancelled(f"stopped at step {step} of {steps}")
    ctx.report_progress(100, "done")


@worker.handler("where")
def where(ctx: JobContext) -> dict[str, object]:
    """Tells on which worker it ran."""
    return {
        "worker": ctx.worker.name,
        "pod": os.environ.get("POD_NAME", ""),
        "host": socket.gethostname(),
        "tags": sorted(ctx.worker.tags),
    }


@worker.handler("survivor", timeout=600)
async def survivor(ctx: JobContext, payload: Lasting) -> dict[str, object]:
    """Its first attempt takes long, for somebody to kill its worker; the next answers at
    once, and says which worker that was.
    """
    if ctx.attempt == 1:
        await wait(ctx, payload.seconds)
    return {
        "attempt": ctx.attempt,
        "worker": ctx.worker.name,
        "session": ctx.worker.session_id,
    }


@worker.handler("noop")
async def noop(ctx: JobContext) -> None:
    """For measuring: all of its time is the queue's."""
