"""Parts of the upkeep: each fails for itself, and is tried again when it is due the next time."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from queue_operator.backends.ending import end_tasks
from queue_operator.domain.errors import Unavailable

Part = Callable[[], Awaitable[object]]

logger = logging.getLogger(__name__)


async def by_itself(what: str, part: Part) -> None:
    """Does a part; an error is logged and raised no further. `what` says what is done, as in
    "counts are folded".
    """
    try:
        await part()
    except Unavailable as error:
        logger.warning("%s later: %s", what, error)
    except Exception:
        logger.exception("%s later: this turn failed", what)


class Background:
    """Some parts in a task of its own, one such task at a time."""

    def __init__(self, name: str, parts: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """`parts` raises nothing."""
        self._name = name
        self._parts = parts
        self._task: asyncio.Task[None] | None = None

    @property
    def is_over(self) -> bool:
        return self._task is None or self._task.done()

    def begin(self) -> None:
        """To be called when it is over."""
        self._task = asyncio.create_task(self._parts(), name=self._name)

    async def settled(self) -> None:
        """Returns when what was begun is over."""
        if self._task is not None:
            await asyncio.wait([self._task])

    async def aclose(self) -> None:
        if self._task is not None:
            await end_tasks([self._task])
