"""How background tasks end."""

import asyncio
from collections.abc import Iterable
from typing import Any, Final

_PATIENCE_S: Final = 1.0


async def end_tasks(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancels tasks until they have ended; what they raised is not looked at.

    Asking once is not enough: before Python 3.12 `asyncio.wait_for` drops a cancel that
    arrives together with the result it waits for, and connection pools wait that way.
    """
    left = {task for task in tasks if not task.done()}
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=_PATIENCE_S)
