"""A worker process that also writes what its session says, is told, and runs."""

import os
import sys
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from tests.chaos.programs.parent import end_with_parent

from queue_operator.testing.history import Log, record_session, recorded_handler
from queue_operator.worker import Cancelled, JobContext, PermanentError, Worker, logs, process
from queue_operator.worker.session import Session

worker = Worker()
log = Log(os.environ["CHAOS_NAME"], Path(os.environ["CHAOS_LOG"]))


class Work(BaseModel):
    seconds: float = 0.0
    fail_times: int = 0


def answer(ctx: JobContext) -> dict[str, object]:
    return {"attempt": ctx.attempt, "worker": ctx.worker.name, "session": ctx.worker.session_id}


async def work(ctx: JobContext, given: Work) -> dict[str, object]:
    if await ctx.cancelled.wait_async(given.seconds):
        raise Cancelled
    return answer(ctx)


@worker.handler("task")
async def task(ctx: JobContext, given: Work) -> dict[str, object]:
    with recorded_handler(log, ctx.job_id, ctx.worker.session_id):
        return await work(ctx, given)


@worker.handler("threaded")
def threaded(ctx: JobContext, given: Work) -> dict[str, object]:
    with recorded_handler(log, ctx.job_id, ctx.worker.session_id):
        if ctx.cancelled.wait(given.seconds):
            raise Cancelled
        return answer(ctx)


@worker.handler("flaky")
async def flaky(ctx: JobContext, given: Work) -> dict[str, object]:
    with recorded_handler(log, ctx.job_id, ctx.worker.session_id):
        if ctx.attempt <= given.fail_times:
            raise RuntimeError(f"attempt {ctx.attempt} of {given.fail_times} that fail")
        return await work(ctx, given)


@worker.handler("broken")
async def broken(ctx: JobContext) -> None:
    with recorded_handler(log, ctx.job_id, ctx.worker.session_id):
        raise PermanentError("it can never work", code="BROKEN")


@worker.handler("overlong", timeout=0.5)
async def overlong(ctx: JobContext, given: Work) -> dict[str, object]:
    with recorded_handler(log, ctx.job_id, ctx.worker.session_id):
        return await work(ctx, given)


def main() -> None:
    end_with_parent(int(os.environ["CHAOS_PARENT"]))
    logs.configure("info", as_json=False)

    def recorded(*args: Any, **options: Any) -> Session:
        return record_session(Session(*args, **options), log)

    vars(process)["Session"] = recorded
    stuck = worker.run()
    sys.stderr.flush()
    os._exit(1 if stuck else 0)


if __name__ == "__main__":
    main()
