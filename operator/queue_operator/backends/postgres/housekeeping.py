"""What is done with each sweep, or once a minute, so that nothing grows: by every replica, and safe
on all of them at once. Each part fails for itself, and is tried again when it is due the next time:
with the next sweep, or, where it prunes, a minute later.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Final

from queue_operator.backends.ending import end_tasks
from queue_operator.backends.postgres.arrivals import Arrivals
from queue_operator.backends.postgres.connection import Pool
from queue_operator.backends.postgres.counts import Counts
from queue_operator.backends.postgres.exploring import Explorer
from queue_operator.backends.postgres.overlooked import Overlooked
from queue_operator.backends.postgres.sessions import SessionStore
from queue_operator.backends.postgres.staging import Staging
from queue_operator.backends.postgres.tidying import Tidying
from queue_operator.domain.errors import Unavailable

_STALE_SESSION_S: Final = 3600.0
_PRUNE_S: Final = 60.0

logger = logging.getLogger(__name__)


class Housekeeping:
    """Folds counts and looks for overlooked jobs; and, in tasks of their own, folds what is more
    than a step, and removes sessions, arrivals and names that nobody needs any more.
    """

    def __init__(
        self,
        pool: Pool,
        counts: Counts,
        arrivals: Arrivals,
        staging: Staging,
        sessions: SessionStore,
        explorer: Explorer,
    ) -> None:
        self.tidying = Tidying(pool)
        self.overlooked = Overlooked(pool, arrivals, staging)
        self._counts = counts
        self._arrivals = arrivals
        self._sessions = sessions
        self._explorer = explorer
        self._prune_at_s = float("-inf")
        self._folding: asyncio.Task[None] | None = None
        self._pruning: asyncio.Task[None] | None = None

    async def keep(self) -> None:
        """A turn. Raises nothing and does not wait for what may take seconds: who calls has
        something to tell that must not be lost or held up by it.
        """
        await _by_itself("counts are folded", self._fold)
        await _by_itself("overlooked jobs are looked for", self.overlooked.look_in_time)
        self._prune_in_time()

    async def _fold(self) -> None:
        if _is_over(self._folding) and await self._counts.fold_some():
            self._folding = asyncio.create_task(self._fold_rest(), name="folding counts")

    async def _fold_rest(self) -> None:
        await _by_itself("the other counts are folded", self._counts.fold_all)

    def _prune_in_time(self) -> None:
        if not _is_over(self._pruning):
            return
        if time.monotonic() >= self._prune_at_s:
            self._prune_at_s = time.monotonic() + _PRUNE_S
            self._pruning = asyncio.create_task(self._prune(), name="pruning the store")
        elif self._explorer.is_behind:
            self._pruning = asyncio.create_task(self._revisit(), name="revisiting lanes")

    async def _prune(self) -> None:
        await _by_itself(
            "sessions are pruned", lambda: self._sessions.prune_sessions(_STALE_SESSION_S)
        )
        await _by_itself("arrivals are pruned", self._arrivals.prune)
        await self._revisit()
        await _by_itself("names are tidied up", self.tidying.tidy)

    async def _revisit(self) -> None:
        await _by_itself("lanes that others emptied are forgotten", self._explorer.revisit)

    async def settled(self) -> None:
        """Returns when what was begun of it is over."""
        if begun := self._begun():
            await asyncio.wait(begun)

    async def aclose(self) -> None:
        await end_tasks(self._begun())

    def _begun(self) -> list[asyncio.Task[None]]:
        return [one for one in (self._folding, self._pruning) if one is not None]


def _is_over(task: asyncio.Task[None] | None) -> bool:
    return task is None or task.done()


async def _by_itself(what: str, part: Callable[[], Awaitable[object]]) -> None:
    try:
        await part()
    except Unavailable as error:
        logger.warning("%s later: %s", what, error)
    except Exception:
        logger.exception("%s later: this turn failed", what)
