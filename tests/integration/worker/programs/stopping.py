"""Handlers that do not end when they should, for worker processes of the tests.

Each writes a line where it begins. The first attempt goes on until the file `gate` exists.
"""

import asyncio
import os
import threading
from pathlib import Path

from queue_operator.worker import JobContext, Worker

worker = Worker()
folder = Path(os.environ["STOPPING_FOLDER"])
_POLL_S = 0.02


def begins(ctx: JobContext) -> bool:
    """Whether it is the first attempt that begins."""
    begun = folder / f"begun-{ctx.job_id}"
    first = not begun.exists()
    with begun.open("a") as lines:
        lines.write(f"{os.getpid()}\n")
    ctx.report_progress(1, "begun")
    return first


@worker.handler("thread")
def thread(ctx: JobContext) -> int:
    """Looks at nothing but the gate."""
    if begins(ctx):
        while not (folder / "gate").exists():
            threading.Event().wait(_POLL_S)
    return ctx.attempt


@worker.handler("coroutine")
async def coroutine(ctx: JobContext) -> int:
    if begins(ctx):
        await asyncio.Event().wait()
    return ctx.attempt


@worker.handler("process", runs_in="process")
def process(ctx: JobContext) -> int:
    if begins(ctx):
        threading.Event().wait()
    return ctx.attempt


@worker.handler("quick")
async def quick(ctx: JobContext) -> None: ...
