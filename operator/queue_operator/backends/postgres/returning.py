"""Claims whose caller is gone, or whose answer was lost: what they took goes back."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, LiteralString

from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from queue_operator.backends.postgres.assigned import leased
from queue_operator.backends.postgres.connection import Pool, borrowed, trust
from queue_operator.backends.postgres.driver_errors import Undone
from queue_operator.domain.errors import Unavailable
from queue_operator.domain.job import Assignment
from queue_operator.domain.outcome import Outcome, Settled
from queue_operator.domain.states import Event

_MARGIN_S: Final = 0.5
_BATCH: Final = 1000

logger = logging.getLogger(__name__)

Settle = Callable[[Sequence[Outcome]], Awaitable[list[Settled]]]
Rows = list[TupleRow]


@dataclass(frozen=True, slots=True)
class Claim:
    """What one statement asks for. `read` makes assignments of its rows; `chances` are the random
    halves of the tokens that it may give, to these assignees. `endless` leases never expire.
    `history` is the one in which its lanes mean what they do.
    """

    statement: LiteralString
    parameters: dict[str, Any]
    read: Callable[[Rows], list[Assignment]]
    assignees: Collection[str]
    chances: Collection[int]
    endless: bool
    history: str


class Returns:
    """Runs claims, and gives back what nobody heard of. `sleep` paces what has to be tried again.

    A claim that is sent to the server is seen through, whether or not somebody still waits for
    it: to break it off would only leave unknown what it did. So there are never more of them
    than the pool has connections.
    """

    def __init__(
        self, pool: Pool, settle: Settle, sleep: Callable[[float], Awaitable[None]]
    ) -> None:
        self._pool = pool
        self._settle = settle
        self._sleep = sleep
        self._tasks: set[asyncio.Task[Any]] = set()
        self._owed: list[Outcome] = []
        self._paying = False
        self._closing = asyncio.Event()

    async def fetch(self, claim: Claim) -> Rows:
        """Raises Unavailable. What it took then goes back, unless its leases expire."""
        trust(self._pool, claim.history)
        async with AsyncExitStack() as stack:
            connection = await stack.enter_async_context(borrowed(self._pool))
            line = stack.pop_all()
        # Nothing was awaited since the connection came: it is the task's alone.
        running = self._start(_fetch(line, connection, claim))
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            self._start(self._unheard(running, claim))
            raise
        except Undone:
            raise
        except Unavailable:
            self._start(self._look_for(claim))
            raise

    async def aclose(self) -> None:
        """After the claims that are under way. What the store does not take back now stays as it
        is: its lease runs out, or `leased` of its assignee tells of it.
        """
        self._closing.set()
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _start(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._over)
        return task

    def _over(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        # Nobody may be left to be told.
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.debug("a claim failed", exc_info=error)

    async def _unheard(self, running: "asyncio.Task[Rows]", claim: Claim) -> None:
        try:
            rows = await running
        except Undone:
            return
        except Unavailable:
            await self._look_for(claim)
        else:
            self.owe(claim.read(rows))

    def owe(self, claimed: Iterable[Assignment]) -> None:
        """Their caller will never hear of them: they go back."""
        self._owed += [_released(one.job_id, one.namespace, one.token) for one in claimed]
        if self._owed and not self._paying:
            self._paying = True
            self._start(self._pay())

    async def _pay(self) -> None:
        try:
            while self._owed:
                batch = self._owed[:_BATCH]
                await self._insist(partial(self._settle, batch))
                del self._owed[: len(batch)]
        except Unavailable as error:
            logger.warning("%d claimed jobs could not be given back: %s", len(self._owed), error)
        finally:
            self._paying = False

    async def _look_for(self, claim: Claim) -> None:
        """A server that is alive ends the statement within its timeout, so there is nothing to be
        found later.
        """
        if not claim.endless:
            return
        await self._take_back(claim)
        await self._sleep(self._pool.statement_timeout_s + _MARGIN_S)
        await self._take_back(claim)

    async def _take_back(self, claim: Claim) -> None:
        found = await self._insist(partial(leased, self._pool, claim.assignees))
        self._owed += [
            _released(one.job_id, one.namespace, one.token)
            for one in found
            if _chance(one.token) in claim.chances
        ]
        self.owe(())

    async def _insist(self, call: Callable[[], Awaitable[Any]]) -> Any:
        """Until the store is there again, or the backend is closed. Raises Unavailable then."""
        while True:
            try:
                return await call()
            except Unavailable as error:
                if self._closing.is_set():
                    raise
                logger.warning("claimed jobs are not given back yet: %s", error)
            await self._pause()

    async def _pause(self) -> None:
        ends = [
            asyncio.ensure_future(self._sleep(self._pool.statement_timeout_s)),
            asyncio.ensure_future(self._closing.wait()),
        ]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for end in ends:
                end.cancel()


async def _fetch(line: AsyncExitStack, connection: AsyncConnection[TupleRow], claim: Claim) -> Rows:
    async with line:
        cursor = await connection.execute(claim.statement, claim.parameters, binary=True)
        return await cursor.fetchall()


def _released(job_id: str, namespace: str, token: str) -> Outcome:
    """STOP where it is being cancelled by now."""
    return Outcome(job_id, Event.RELEASE, namespace=namespace, token=token, worker_plane=True)


def _chance(token: str) -> int:
    """The random half of a token of this store, as `chances` draws it."""
    return int.from_bytes(bytes.fromhex(token.replace("-", "")[16:]), "big", signed=True)
