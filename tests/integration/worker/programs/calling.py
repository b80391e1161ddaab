"""Handlers that call a library which knows nothing of jobs, and logs."""

import logging

from queue_operator.worker import JobContext, Worker

worker = Worker()
library = logging.getLogger("library")


def calls(ctx: JobContext) -> None:
    library.info("connecting to %s", "there", extra={"port": 25})
    if ctx.attempt == 1:
        try:
            raise ConnectionError("nobody is there")
        except ConnectionError:
            library.exception("gave up")
            raise


async def awaits(ctx: JobContext) -> None:
    calls(ctx)


worker.register("thread", calls)
worker.register("loop", awaits)
worker.register("process", calls, runs_in="process")
