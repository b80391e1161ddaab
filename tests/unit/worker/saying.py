"""Handlers that write to Python's `logging`, as code does that knows nothing of jobs."""

import asyncio
import logging
from typing import Final

from queue_operator.worker import JobContext

library: Final = logging.getLogger("library")


class Talkative:
    """Whose text is not had without a line."""

    def __str__(self) -> str:
        library.info("asked for its text")
        return "talkative"


def talks() -> None:
    library.debug("too low")
    library.warning("careful %d", 3, extra={"user": "ada"})
    try:
        raise ValueError("no such user")
    except ValueError:
        library.exception("failed")


def says(ctx: JobContext) -> None:
    talks()
    ctx.log("info", "from the context")


async def says_on_the_loop(ctx: JobContext) -> None:
    says(ctx)


async def says_in_a_thread(ctx: JobContext) -> None:
    await asyncio.to_thread(says, ctx)


def says_its_job(ctx: JobContext) -> None:
    library.info("of %s", ctx.job_id)


def asks_a_talker(ctx: JobContext) -> None:
    library.info("%s", Talkative())


def says_what_is_no_text(ctx: JobContext) -> None:
    try:
        raise ValueError("no such file: \udcff" + "x" * 2000)
    except ValueError:
        logging.getLogger("library").exception("failed", stack_info=True)
