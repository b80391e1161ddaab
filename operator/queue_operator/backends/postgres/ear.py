"""The connection that listens for notifications, and how it comes back."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Final

import psycopg

from queue_operator.backends.postgres.line import Line, address
from queue_operator.backends.postgres.signals import RETRY
from queue_operator.backends.sql import load
from queue_operator.domain.retry import delay_s

_LISTEN: Final = load(__package__, "signal_listen")
_STAY: Final = load(__package__, "signal_stay")
_NAME: Final = "queue-operator-listen"
_CONNECT_TIMEOUT_S: Final = 5
_WAIT_S: Final = 2.0
"""Shorter than a line's patience with a server that does not answer: here nobody was asked."""

logger = logging.getLogger(__name__)


@asynccontextmanager
async def _closing(connection: Line) -> AsyncIterator[Line]:
    try:
        yield connection
    finally:
        await connection.close()


class Ear:
    """Hears what the server tells. `connected` is called whenever a connection was made, before
    which notifications may have been missed; `tried` is set once the first attempt is over.

    `dsn` must lead to the server itself: a pooler in transaction mode would give the listening
    connection to others.
    """

    def __init__(
        self,
        dsn: str,
        notice: Callable[[str], None],
        connected: Callable[[], None],
        rng: Callable[[], float],
    ) -> None:
        self._dsn = dsn
        self._notice = notice
        self._connected = connected
        self._rng = rng
        self.tried = asyncio.Event()

    async def listen(self) -> None:
        """Until it is cancelled."""
        failures = 0
        while True:
            try:
                await asyncio.sleep(delay_s(RETRY, failures, self._rng) if failures else 0.0)
                async with _closing(await self._connect()) as connection:
                    failures = 0
                    self._connected()
                    self.tried.set()
                    await self._follow(connection)
            except (psycopg.Error, OSError) as error:
                failures += 1
                self.tried.set()
                if failures == 1:
                    logger.warning("the listening connection is down, polling alone: %s", error)

    async def _follow(self, connection: Line) -> None:
        while True:
            async with aclosing(connection.notifies(timeout=_WAIT_S)) as notices:
                async for notice in notices:
                    self._notice(notice.payload)

    async def _connect(self) -> Line:
        given = address(self._dsn, application_name=_NAME, connect_timeout=_CONNECT_TIMEOUT_S)
        connection = await Line.connect(given, autocommit=True)
        try:
            await connection.execute(_STAY)
            await connection.execute(_LISTEN)
        except BaseException:
            await connection.close()
            raise
        return connection
