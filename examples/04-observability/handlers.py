"""Two kinds of workers, for an incident to be planted: one sends mail, one makes pictures."""

import asyncio

from pydantic import BaseModel, Field

from queue_operator.worker import JobContext, PermanentError, Worker

mail = Worker()
media = Worker()


class Message(BaseModel):
    """`host` is where to deliver; one that ends with `.invalid` is never there."""

    host: str = "mail.example"
    seconds: float = Field(0.02, ge=0, le=60)


class Picture(BaseModel):
    """How long the work takes."""

    seconds: float = Field(0.2, ge=0, le=600)


@mail.handler("send-mail")
async def send_mail(ctx: JobContext, payload: Message) -> dict[str, str]:
    await asyncio.sleep(payload.seconds)
    if payload.host.endswith(".invalid"):
        raise PermanentError(f"no such host: {payload.host}", code="NO_SUCH_HOST")
    return {"delivered": payload.host}


@media.handler("resize")
async def resize(ctx: JobContext, payload: Picture) -> dict[str, float]:
    await asyncio.sleep(payload.seconds)
    return {"took": payload.seconds}
