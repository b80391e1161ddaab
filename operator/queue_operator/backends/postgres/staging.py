"""Jobs whose delay or backoff is over become due here, and arrive in their lanes by that."""

from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from queue_operator.backends.postgres.connection import Pool, borrowed
from queue_operator.backends.postgres.driver_errors import TookTooLong
from queue_operator.backends.postgres.steps import Steps
from queue_operator.backends.sql import load

_STAGE: Final = load(__package__, "stage", staging=load(__package__, "stage_due"))
_BATCH: Final = 1000
_EVER: Final = datetime(1, 1, 1, tzinfo=UTC)
_LATER: Final = datetime(9999, 12, 31, tzinfo=UTC)


NOWHERE: Final = {"since": _LATER, "until": _LATER, "max_rows": 0}
"""The parameters of a look that finds nothing."""


class Look(NamedTuple):
    """A look that began: the parameters of its statement, and what it has to bring back. `steps`
    is what it is a piece of.
    """

    parameters: dict[str, Any]
    tick: int
    steps: Steps


class Staging:
    """Remembers before which time no job waits for one: whoever looked there found only dead
    entries, which are not walked again. What is stored with an earlier time is told of
    (`arrivals`). Where nothing is known and more is dead than a statement has the time for, it is
    looked through piece by piece.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._steps = _everywhere()
        self._asked = 0
        self._expected: list[tuple[int, datetime]] = []
        self._tick = 0

    def look_everywhere(self) -> None:
        self._steps = _everywhere()

    def expect(self, at: datetime) -> None:
        """A job was stored that is due then."""
        if at < self._steps.begins_at:
            self._steps.go_on_from(at)
        if self._asked:
            self._tick += 1
            self._expected.append((self._tick, at))

    def has_passed(self, at: datetime) -> bool:
        """Whether no look goes back to what was due then."""
        return at < self._steps.begins_at

    @property
    def is_behind(self) -> bool:
        """Whether one look is not enough for what has become due."""
        return not self._steps.is_whole

    def ask(self) -> Look:
        self._asked += 1
        since, until = self._steps.next() or (_LATER, _LATER)
        parameters = {"since": since, "until": until, "max_rows": _BATCH}
        return Look(parameters, self._tick, self._steps)

    def leave(self, look: Look, since: datetime | None) -> None:
        """A look is over: nothing that it could see waits before `since`; None where it failed."""
        self._asked -= 1
        if look.steps is not self._steps:
            # All is looked through anew since it began, also what lies before its piece.
            pass
        elif since is None:
            self._steps.failed()
        else:
            later = [at for tick, at in self._expected if tick > look.tick]
            self._steps.go_on_from(min([since, *later]))
        if not self._asked:
            self._expected.clear()

    async def stage_for_claim(self) -> bool:
        """For a claim where nobody listens: whether jobs became due. What takes too long is no
        error of the claim, and a smaller piece is looked through the next time.
        """
        with suppress(TookTooLong):
            return bool(await self.stage())
        return False

    async def stage(self) -> list[int]:
        """Makes jobs due whose time has come; gives their lanes."""
        look, since = self.ask(), None
        try:
            async with borrowed(self._pool) as connection:
                cursor = await connection.execute(_STAGE, look.parameters)
                rows = await cursor.fetchall()
            # Behind a pooler it is not committed before.
            [(lanes, since)] = rows
        finally:
            self.leave(look, since)
        return list(lanes)


def _everywhere() -> Steps:
    # By our own clock, which may be off: then it takes more steps.
    return Steps(_EVER, _LATER, datetime.now(UTC))


def is_full(lanes: Sequence[int]) -> bool:
    """Whether there may be more than these."""
    return len(lanes) >= _BATCH
