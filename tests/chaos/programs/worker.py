"""A worker process that also writes what its session says, is told, and runs."""

import os
import sys
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel
from tests.chaos.programs.parent import end_with_parent

from queue_operator.observing import lines
from queue_operator.testing.history import Kind, Log, digest, record_session
from queue_operator.worker import (
    Backoff,
    BackoffStrategy,
    Cancelled,
    JobContext,
    PermanentError,
    Worker,
    process,
)
from queue_operator.worker.session import Session

worker = Worker()
log = Log(os.environ["CHAOS_NAME"], Path(os.environ["CHAOS_LOG"]))


STEPS: Final = 3
CHILDREN: Final = 2
AT_ONCE: Final = Backoff(strategy=BackoffStrategy.CONSTANT, initial_delay=timedelta())
_numbers = count(1)


class Work(BaseModel):
    seconds: float = 0.0
    fail_times: int = 0


class State(BaseModel):
    """What a checkpoint holds. No two are equal."""

    step: int
    by: str
    number: int


def answer(ctx: JobContext) -> dict[str, object]:
    return {"attempt": ctx.attempt, "worker": ctx.worker.name, "session": ctx.worker.session_id}


async def work(ctx: JobContext, given: Work) -> dict[str, object]:
    if await ctx.cancelled.wait_async(given.seconds):
        raise Cancelled
    return answer(ctx)


@worker.handler("task")
async def task(ctx: JobContext, given: Work) -> dict[str, object]:
    return await work(ctx, given)


@worker.handler("threaded")
def threaded(ctx: JobContext, given: Work) -> dict[str, object]:
    if ctx.cancelled.wait(given.seconds):
        raise Cancelled
    return answer(ctx)


@worker.handler("stepping")
async def stepping(ctx: JobContext, given: Work) -> dict[str, object]:
    """Goes on where the last attempt stored that it was."""
    last = ctx.last_checkpoint()
    done = State.model_validate_json(last).step if last is not None else 0
    for step in range(done + 1, STEPS + 1):
        if await ctx.cancelled.wait_async(given.seconds / STEPS):
            raise Cancelled
        ctx.log("info", f"step {step} of {STEPS}", attempt=ctx.attempt)
        state = State(step=step, by=ctx.worker.session_id, number=next(_numbers))
        stored = state.model_dump_json().encode()
        await ctx.checkpoint(stored)
        # What the handler was told counts, not what its session was.
        log.write(Kind.CHECKPOINT_ACKNOWLEDGED, ctx.job_id, state=digest(stored))
        if step == given.fail_times and last is None:
            raise RuntimeError(f"it fails after step {step}, once")
    return answer(ctx)


@worker.handler("parent")
async def parent(ctx: JobContext, given: Work) -> dict[str, object]:
    for place in range(1, CHILDREN + 1):
        child = await ctx.spawn("task", Work(), key=f"{place}", max_attempts=20, backoff=AT_ONCE)
        log.write(Kind.SPAWN_ACKNOWLEDGED, ctx.job_id, key=f"={place}", child=child)
        if await ctx.cancelled.wait_async(given.seconds / CHILDREN):
            raise Cancelled
    return answer(ctx)


@worker.handler("flaky")
async def flaky(ctx: JobContext, given: Work) -> dict[str, object]:
    if ctx.attempt <= given.fail_times:
        raise RuntimeError(f"attempt {ctx.attempt} of {given.fail_times} that fail")
    return await work(ctx, given)


@worker.handler("broken")
async def broken(ctx: JobContext) -> None:
    raise PermanentError("it can never work", code="BROKEN")


@worker.handler("overlong", timeout=0.5)
async def overlong(ctx: JobContext, given: Work) -> dict[str, object]:
    return await work(ctx, given)


def main() -> None:
    end_with_parent(int(os.environ["CHAOS_PARENT"]))
    lines.configure("info", lines.LogFormat.TEXT, "worker")

    def recorded(*args: Any, **options: Any) -> Session:
        _, _, _, launcher = args
        return record_session(Session(*args, **options), launcher, log)

    vars(process)["Session"] = recorded
    stuck = worker.run()
    sys.stderr.flush()
    os._exit(1 if stuck else 0)


if __name__ == "__main__":
    main()
