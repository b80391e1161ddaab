"""Waiting jobs that nobody told of are found by a slow look at all of them, some pages at a time.

Claims rely on what arrivals tell. If ever one is missing, through a fault of ours or a hand in the
database, its jobs would wait until the process starts anew. What is found here is logged, for it
is a fault each time.
"""

import logging
import time
from collections.abc import Set
from typing import Final

from queue_operator.backends.postgres.arrivals import Arrivals
from queue_operator.backends.postgres.connection import Pool, borrowed
from queue_operator.backends.postgres.fronts import Place, Range
from queue_operator.backends.postgres.staging import Staging
from queue_operator.backends.sql import load

_SLICE: Final = load(__package__, "overlooked_slice")
_STILL: Final = load(__package__, "overlooked_still")
_PAGES: Final = 256
"""Two MiB, in which some thousand jobs wait."""
_EVERY_S: Final = 5.0

logger = logging.getLogger(__name__)


class Overlooked:
    """Goes round `ready` for one process: some thousand jobs with each sweep, though not more often
    than every five seconds.
    """

    def __init__(self, pool: Pool, arrivals: Arrivals, staging: Staging) -> None:
        self._pool = pool
        self._arrivals = arrivals
        self._staging = staging
        self._page = 0
        self._look_at_s = float("-inf")

    async def look_in_time(self) -> None:
        """A look, unless there was one a short time ago."""
        if time.monotonic() >= self._look_at_s:
            self._look_at_s = time.monotonic() + _EVERY_S
            await self.look()

    async def look(self, *, pages: int = _PAGES) -> int:
        """Looks at the next pages, and gives how much was found in them."""
        first, end = self._page, self._page + pages
        span = {"from_page": f"({first},0)", "to_page": f"({end},0)"}
        async with borrowed(self._pool) as connection:
            cursor = await connection.execute(_SLICE, span, binary=True)
            [
                (all_pages, lanes, firsts, first_nos, lasts, last_nos, *late)
            ] = await cursor.fetchall()
        self._page = end if end < all_pages else 0
        waiting = dict(
            zip(
                lanes,
                map(Range, zip(firsts, first_nos, strict=True), zip(lasts, last_nos, strict=True)),
                strict=True,
            )
        )
        # What the slice saw has been told of by now.
        await self._arrivals.catch_up(thorough=True)
        covers = self._arrivals.fronts.covers
        missed = {
            (lane_id, place)
            for lane_id, ends in waiting.items()
            for place in ends
            if not covers(lane_id, place)
        }
        number, due_at = late
        if number is not None and not self._staging.has_passed(due_at):
            number = None
        lanes_found, is_late = await self._still(missed, number)
        await self._arrivals.note({lane_id: waiting[lane_id] for lane_id in lanes_found})
        if is_late:
            self._staging.expect(due_at)
        found = len(lanes_found) + is_late
        if found:
            logger.warning(
                "jobs waited in %d places of which nobody had told; they are claimed now, but this"
                " is a fault: please report it",
                found,
            )
        return found

    async def _still(
        self, missed: Set[tuple[int, Place]], late_number: int | None
    ) -> tuple[set[int], bool]:
        """The lanes of those that still wait as the slice saw it, and whether the late one does:
        the others have been claimed meanwhile.
        """
        numbers = [number for _, (_, number) in missed]
        if late_number is not None:
            numbers.append(late_number)
        if not numbers:
            return set(), False
        async with borrowed(self._pool) as connection:
            cursor = await connection.execute(_STILL, {"job_nos": numbers})
            rows = await cursor.fetchall()
        lanes = {
            lane_id
            for number, lane_id, order_time, due in rows
            if due and (lane_id, (order_time, number)) in missed
        }
        return lanes, any(number == late_number and not due for number, _, _, due in rows)
