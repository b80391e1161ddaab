"""What the walk needs: a job that completes, one that fails for good, one that takes long."""

from pydantic import BaseModel

from queue_operator.worker import Cancelled, JobContext, PermanentError, Worker

worker = Worker()

LONG_S = 3600.0


class Order(BaseModel):
    number: int
    cents: int


@worker.handler("invoice")
def invoice(ctx: JobContext, payload: Order) -> dict[str, str]:
    ctx.log("info", "writing an invoice", number=payload.number)
    return {"text": f"Invoice {payload.number}: {payload.cents / 100:.2f}"}


@worker.handler("charge")
def charge(ctx: JobContext, payload: Order) -> None:
    raise PermanentError(f"order {payload.number}: the card was declined", code="DECLINED")


@worker.handler("report")
async def report(ctx: JobContext, payload: Order) -> None:
    """Runs until somebody cancels it."""
    if await ctx.cancelled.wait_async(LONG_S):
        raise Cancelled("as you wish")
