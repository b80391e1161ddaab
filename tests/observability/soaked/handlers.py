"""What a worker of the soak does beside those of the example: pages of which some fail at first."""

from pydantic import BaseModel

from queue_operator.worker import JobContext, Worker

index = Worker()


class Page(BaseModel):
    """`stumbles`: the first attempt fails."""

    stumbles: bool = False


@index.handler("index-page")
async def index_page(ctx: JobContext, payload: Page) -> dict[str, int]:
    if payload.stumbles and ctx.attempt == 1:
        raise TimeoutError("the index does not answer")
    return {"attempt": ctx.attempt}
