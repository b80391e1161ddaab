"""Wake-ups between processes: versions in the table `signal`, a notification as a hint.

The table is the truth and is polled, so nothing depends on notifications arriving. They
are sent in a transaction of their own, a hundred a second at most: a commit that notifies
takes a lock of the whole server, which would serialise every submission.
"""

import asyncio
import json
import logging
import random
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import Final

import psycopg
from psycopg import AsyncConnection
from psycopg.conninfo import make_conninfo
from psycopg.rows import TupleRow

from queue_operator.backends.postgres.connection import Pool, borrowed
from queue_operator.backends.protocol import Topic
from queue_operator.backends.sql import load
from queue_operator.domain.errors import Unavailable
from queue_operator.domain.retry import Backoff, BackoffStrategy, delay_s

_ANNOUNCE: Final = load(__package__, "signal_announce")
_VERSIONS: Final = load(__package__, "signal_versions")
_LISTEN: Final = load(__package__, "signal_listen")

_SPACING_S: Final = 0.01
_POLL_S: Final = 0.25
_RETRY: Final = Backoff(BackoffStrategy.EXPONENTIAL, initial_delay_s=0.1, max_delay_s=5.0)
# The kernel notices a peer that vanished without a word within about 10 s.
_LINE_OPTIONS: Final[dict[str, str | int | None]] = {
    "application_name": "queue-operator-listen",
    "connect_timeout": 5,
    "keepalives_idle": 4,
    "keepalives_interval": 2,
    "keepalives_count": 3,
}
_EVERYTHING: Final = frozenset(Topic)

Versions = Mapping[str, int]

logger = logging.getLogger(__name__)


class Announcer:
    """Announces topics in the background; those that come close together share a commit."""

    def __init__(self, pool: Pool, *, rng: Callable[[], float] = random.random) -> None:
        self._pool = pool
        self._rng = rng
        self._waiting: set[Topic] = set()
        self._task: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()
        self._failures = 0

    def announce(self, *topics: Topic) -> None:
        """Never blocks and never fails: call it after the commit of what it tells about.

        After `aclose` it does nothing.
        """
        if self._closing.is_set():
            return
        self._waiting.update(topics)
        if self._waiting and self._task is None:
            self._task = asyncio.create_task(self._send_all())

    async def aclose(self) -> None:
        """Sends what is waiting, once; without success it is left to the others' polling."""
        self._closing.set()
        if self._task is not None:
            await self._task

    async def _send_all(self) -> None:
        """Sends at once after a quiet time, then at most once per spacing."""
        try:
            while self._waiting:
                await self._send()
                if self._failures and self._closing.is_set():
                    return
                failing = self._failures > 0
                await self._pause(
                    delay_s(_RETRY, self._failures, self._rng) if failing else _SPACING_S
                )
        finally:
            self._task = None

    async def _send(self) -> None:
        topics, self._waiting = self._waiting, set()
        try:
            async with borrowed(self._pool) as connection:
                await connection.execute(_ANNOUNCE, {"topics": sorted(topics)})
        except (Unavailable, psycopg.Error) as error:
            self._waiting |= topics
            self._failures += 1
            if self._failures == 1:
                named = ", ".join(sorted(topics))
                logger.warning("announcing %s failed, trying again: %s", named, error)
        else:
            self._failures = 0

    async def _pause(self, wait_s: float) -> None:
        try:
            async with asyncio.timeout(wait_s):
                await self._closing.wait()
        except TimeoutError:
            pass


class Listener:
    """Waits for announcements of all processes, the own one included.

    `dsn` must lead to the server itself: a pooler in transaction mode would give the listening
    connection to others. Without one, announcements are seen by polling alone.
    """

    def __init__(
        self, dsn: str | None, pool: Pool, *, rng: Callable[[], float] = random.random
    ) -> None:
        self._dsn = dsn
        self._pool = pool
        self._rng = rng

    async def listen(self) -> AsyncGenerator[frozenset[Topic], None]:
        """Yields all topics first, since nobody knows what was missed before, and again
        after a connection was lost; else those announced since the last yield.
        """
        line, poll, seen = _Line(self._dsn, self._rng), _Poll(self._pool), _Seen()
        lost = True
        try:
            while True:
                announced = await line.receive(poll.due_in_s())
                lost = lost or announced is None
                news = seen.note(announced or {})
                if lost or not poll.due_in_s():
                    stored = await poll.read()
                    if stored is not None:
                        news |= seen.rebase(stored) if lost else seen.note(stored)
                    lost = stored is None
                if news:
                    yield news
        finally:
            await line.aclose()


class _Seen:
    """The versions told about so far."""

    def __init__(self) -> None:
        self._versions: dict[str, int] = {}

    def note(self, versions: Versions) -> frozenset[Topic]:
        """Topics that have risen. A late notification may be behind what the table said."""
        risen = [topic for topic in Topic if versions.get(topic, 0) > self._versions.get(topic, 0)]
        self._versions.update((topic, versions[topic]) for topic in risen)
        return frozenset(risen)

    def rebase(self, versions: Versions) -> frozenset[Topic]:
        """All topics. The versions may be lower than before: a server that crashed, or a
        standby that took over, has lost the last of them.
        """
        self._versions = dict(versions)
        return _EVERYTHING


class _Poll:
    """Reads the table, and knows when to do so again."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._next_at = asyncio.get_running_loop().time() + _POLL_S
        self._failing = False

    def due_in_s(self) -> float:
        return max(self._next_at - asyncio.get_running_loop().time(), 0.0)

    async def read(self) -> Versions | None:
        """The versions; None when the table cannot be read."""
        versions = None
        try:
            async with borrowed(self._pool) as connection:
                versions = dict(await (await connection.execute(_VERSIONS)).fetchall())
        except (Unavailable, psycopg.Error) as error:
            if not self._failing:
                logger.warning("reading the signals failed, trying again: %s", error)
        self._failing = versions is None
        self._next_at = asyncio.get_running_loop().time() + _POLL_S
        return versions


class _Line:
    """The connection that listens. While it is down `receive` waits all the same, and the
    next one is made in the background.
    """

    def __init__(self, dsn: str | None, rng: Callable[[], float]) -> None:
        self._dsn = dsn
        self._rng = rng
        self._connection: AsyncConnection[TupleRow] | None = None
        self._attempt: asyncio.Task[AsyncConnection[TupleRow]] | None = None
        self._failures = 0

    async def receive(self, timeout_s: float) -> Versions | None:
        """The versions announced within `timeout_s`, as soon as there are any; None when a
        connection was made, before which announcements may have been missed.
        """
        if self._dsn is None:
            await asyncio.sleep(timeout_s)
            return {}
        if self._connection is None:
            return await self._reconnected(self._dsn, timeout_s)
        try:
            return await self._notified(self._connection, timeout_s)
        except (psycopg.Error, OSError) as error:
            await self._hang_up()
            self._failed(error)
            return {}

    async def aclose(self) -> None:
        if self._attempt is not None:
            self._attempt.cancel()
            await asyncio.wait({self._attempt})
            if not self._attempt.cancelled() and self._attempt.exception() is None:
                self._connection = self._attempt.result()
        await self._hang_up()

    async def _notified(
        self, connection: AsyncConnection[TupleRow], timeout_s: float
    ) -> dict[str, int]:
        newest: dict[str, int] = {}
        async with aclosing(connection.notifies(timeout=timeout_s, stop_after=1)) as notices:
            async for notice in notices:
                newest.update(json.loads(notice.payload))
        return newest

    async def _reconnected(self, dsn: str, timeout_s: float) -> Versions | None:
        if self._attempt is None:
            wait_s = delay_s(_RETRY, self._failures, self._rng) if self._failures else 0.0
            self._attempt = asyncio.create_task(self._connect(dsn, wait_s))
        done, _ = await asyncio.wait({self._attempt}, timeout=timeout_s)
        if not done:
            return {}
        attempt, self._attempt = self._attempt, None
        try:
            self._connection = attempt.result()
        except (psycopg.Error, OSError) as error:
            self._failed(error)
            return {}
        self._failures = 0
        return None

    async def _connect(self, dsn: str, wait_s: float) -> AsyncConnection[TupleRow]:
        await asyncio.sleep(wait_s)
        connection = await AsyncConnection.connect(
            make_conninfo(dsn, **_LINE_OPTIONS), autocommit=True
        )
        try:
            await connection.execute(_LISTEN)
        except BaseException:
            await connection.close()
            raise
        return connection

    def _failed(self, error: Exception) -> None:
        self._failures += 1
        if self._failures == 1:
            logger.warning("the listening connection is down, polling alone: %s", error)

    async def _hang_up(self) -> None:
        if self._connection is not None:
            await self._connection.close()
            self._connection = None
