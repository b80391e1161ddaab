"""What is done with each sweep, or once a minute, so that nothing grows: by every replica, and safe
on all of them at once.
"""

import logging
import time
from typing import Final

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
    """Folds counts, looks for overlooked jobs, and removes sessions, arrivals and names that nobody
    needs any more.
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

    async def keep(self) -> None:
        """A turn. What cannot be done now waits for the next one, which is logged: who calls has
        something to tell that must not be lost by it.
        """
        try:
            await self._counts.fold_all()
            await self.overlooked.look_in_time()
            if time.monotonic() >= self._prune_at_s:
                self._prune_at_s = time.monotonic() + _PRUNE_S
                await self._prune()
        except Unavailable as error:
            logger.warning("counts and names are tidied up later: %s", error)

    async def _prune(self) -> None:
        await self._sessions.prune_sessions(_STALE_SESSION_S)
        await self._arrivals.prune()
        await self._explorer.revisit()
        await self.tidying.tidy()
