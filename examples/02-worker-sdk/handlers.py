"""A long job that goes on where it was, and the small jobs that it makes.

A `statement` adds up a customer's orders, one after the other, and has a `receipt` printed for
each. It tells how far it is, stores what it has after each order, and stops when it is asked to.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import BaseModel, Field

from queue_operator.worker import Cancelled, JobContext, PermanentError, Retry, Worker


class Statement(BaseModel):
    """What a statement is made of. `slow_s` is how long each order takes to look up."""

    customer: str = Field(min_length=1)
    orders: list[Annotated[int, Field(gt=0)]] = Field(min_length=1, max_length=1000)
    slow_s: float = Field(0.0, ge=0, le=60)


class Total(BaseModel):
    """What a statement gives. `resumed_at` is the order at which the last attempt began."""

    cents: int
    receipts: list[str]
    resumed_at: int


class Sofar(BaseModel):
    """What is stored between two orders: enough to go on, whoever does."""

    done: int = 0
    cents: int = 0
    receipts: list[str] = Field(default_factory=list)


class Receipt(BaseModel):
    customer: str
    order: int


@dataclass
class Shop:
    """Stands for the database of a shop: made once, before the first job."""

    closed: set[int] = field(default_factory=set)

    def price_in_cents(self, order: int) -> int:
        if order == 404:
            raise KeyError(order)
        return 100 * order


@asynccontextmanager
async def lifespan(_: Worker) -> AsyncIterator[Shop]:
    """What all jobs share: `ctx.state`."""
    yield Shop()


worker = Worker(lifespan=lifespan)


@worker.handler("statement", timeout=3600, max_attempts=10, concurrency=4)
async def statement(ctx: JobContext, asked: Statement) -> Total:
    stored = ctx.last_checkpoint()
    sofar = Sofar.model_validate_json(stored) if stored else Sofar()
    began = sofar.done
    ctx.log("info", "adding up", customer=asked.customer, orders=len(asked.orders), begun_at=began)
    for order in asked.orders[began:]:
        ctx.report_progress(100 * sofar.done // len(asked.orders), f"order {order}")
        if await ctx.cancelled.wait_async(asked.slow_s):
            raise Cancelled(f"stopped before order {order}")
        sofar.cents += _price(ctx.state, order)
        # A second attempt that comes here again gets the same child, not another one.
        receipt = Receipt(customer=asked.customer, order=order)
        sofar.receipts.append(await ctx.spawn("receipt", receipt, key=f"order-{order}"))
        sofar.done += 1
        await ctx.checkpoint(sofar.model_dump_json().encode())
    return Total(cents=sofar.cents, receipts=sofar.receipts, resumed_at=began)


def _price(shop: Shop, order: int) -> int:
    try:
        return shop.price_in_cents(order)
    except KeyError:
        raise PermanentError(f"there is no order {order}", code="NO_SUCH_ORDER") from None


@worker.handler("receipt", timeout=30)
def receipt(ctx: JobContext, asked: Receipt) -> dict[str, str]:
    """A plain function: it runs in a thread and may block."""
    if asked.order == 13 and ctx.attempt == 1:
        raise Retry("the printer is out of paper", after=0.1)
    return {"text": f"Order {asked.order} of {asked.customer}, with thanks"}
