"""What is done with each sweep, or once a minute, so that nothing grows: by every replica, and safe
on all of them at once. Each part fails for itself, and is tried again when it is due the next time:
with the next sweep, or, where it prunes, a minute later.
"""

import time
from typing import Final

from queue_operator.backends.postgres.arrivals import Arrivals
from queue_operator.backends.postgres.connection import Pool
from queue_operator.backends.postgres.counts import Counts
from queue_operator.backends.postgres.mirror import MirrorStore
from queue_operator.backends.postgres.overlooked import Overlooked
from queue_operator.backends.postgres.sessions import SessionStore
from queue_operator.backends.postgres.staging import Staging
from queue_operator.backends.postgres.tidying import Tidying
from queue_operator.backends.postgres.upkeep import Background, by_itself

_STALE_SESSION_S: Final = 3600.0
_PRUNE_S: Final = 60.0


class Housekeeping:
    """Folds counts and looks for overlooked jobs; and, in tasks of their own, folds what is more
    than a step, and removes sessions, arrivals, tombstones and names that nobody needs any more.
    """

    def __init__(
        self,
        pool: Pool,
        counts: Counts,
        arrivals: Arrivals,
        staging: Staging,
        sessions: SessionStore,
        mirror: MirrorStore,
    ) -> None:
        self.tidying = Tidying(pool)
        self.overlooked = Overlooked(pool, arrivals, staging)
        self._counts = counts
        self._arrivals = arrivals
        self._sessions = sessions
        self._mirror = mirror
        self._prune_at_s = float("-inf")
        self._folding = Background("folding counts", self._fold_rest)
        self._pruning = Background("pruning the store", self._prune)

    async def keep(self) -> None:
        """A turn. Raises nothing and does not wait for what may take seconds: who calls has
        something to tell that must not be lost or held up by it.
        """
        await by_itself("counts are folded", self._fold)
        await by_itself("overlooked jobs are looked for", self.overlooked.look_in_time)
        if self._pruning.is_over and time.monotonic() >= self._prune_at_s:
            self._prune_at_s = time.monotonic() + _PRUNE_S
            self._pruning.begin()

    async def _fold(self) -> None:
        if self._folding.is_over and await self._counts.fold_some():
            self._folding.begin()

    async def _fold_rest(self) -> None:
        await by_itself("the other counts are folded", self._counts.fold_all)

    async def _prune(self) -> None:
        await by_itself(
            "sessions are pruned", lambda: self._sessions.prune_sessions(_STALE_SESSION_S)
        )
        await by_itself("lost workers are forgotten", self._sessions.forget_lost)
        await by_itself("arrivals are pruned", self._arrivals.prune)
        await by_itself("tombstones are pruned", self._mirror.prune)
        await by_itself("names are tidied up", self.tidying.tidy)

    async def settled(self) -> None:
        """Returns when what was begun of it is over."""
        await self._folding.settled()
        await self._pruning.settled()

    async def aclose(self) -> None:
        await self._folding.aclose()
        await self._pruning.aclose()
