"""How late an event loop is: what is measured as a timer that fires too late."""

from collections.abc import Callable
from typing import Final

from queue_operator.domain.clock import Clock

INTERVAL_S: Final = 0.25


async def watch_lag(observe: Callable[[float], None], clock: Clock) -> None:
    """Until it is cancelled, tells of each timer how much later than asked it fired."""
    while True:
        due_s = clock.monotonic() + INTERVAL_S
        await clock.sleep(INTERVAL_S)
        observe(max(0.0, clock.monotonic() - due_s))
