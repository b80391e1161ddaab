"""A handler that tells what it was told of its job."""

from queue_operator.worker import JobContext, Worker

worker = Worker()


@worker.handler("when")
def when(ctx: JobContext) -> dict[str, object]:
    """The second attempt tells when the job was submitted."""
    if ctx.attempt == 1:
        raise RuntimeError("not yet")
    offset = ctx.created_at.utcoffset()
    return {
        "at": ctx.created_at.isoformat(),
        "offset_s": None if offset is None else offset.total_seconds(),
    }
