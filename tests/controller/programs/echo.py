"""A worker that gives back what it gets."""

from typing import Any

from queue_operator.worker import JobContext, Worker

worker = Worker()


@worker.handler("echo")
async def echo(ctx: JobContext, payload: Any) -> Any:
    return payload
