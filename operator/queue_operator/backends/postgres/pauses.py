"""Pauses: rows that every replica reads before its next claim, or within a pulse."""

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Final

from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from queue_operator.backends.postgres.arrivals import FRESH_S
from queue_operator.backends.postgres.connection import Pool, again_when_undone, borrowed
from queue_operator.backends.postgres.lanes import Lanes
from queue_operator.backends.postgres.signals import Announcer
from queue_operator.backends.protocol import Pause, Topic
from queue_operator.backends.sql import load

_STORE: Final = load(__package__, "pause_store")
_END: Final = load(__package__, "pause_end")
_LIST: Final = load(__package__, "pause_list")


class PauseStore:
    """The protocol `Pauses`; the arguments are checked."""

    def __init__(
        self,
        pool: Pool,
        lanes: Lanes,
        announcer: Announcer,
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self._pool = pool
        self._gate = lanes.gate
        self._announcer = announcer
        self._sleep = sleep

    async def pause(self, pause: Pause) -> Pause:
        """Returns when no claim that begins from now on, on any replica, goes by what was read
        before.
        """
        stored = await self._store(pause)
        await self._sleep(FRESH_S)
        return stored

    @again_when_undone
    async def _store(self, pause: Pause) -> Pause:
        parameters = {
            "namespace": pause.namespace,
            "type": pause.type,
            "reason": pause.reason,
            "paused_by": pause.by,
        }
        async with borrowed(self._pool) as connection:
            cursor = await connection.execute(_STORE, parameters)
            [row] = await cursor.fetchall()
        self._gate.shut(pause.namespace, pause.type)
        self._announcer.announce(Topic.PAUSE)
        return _pause(*row)

    @again_when_undone
    async def resume(self, namespace: str, type_: str) -> bool:
        async with borrowed(self._pool) as connection:
            cursor = await connection.execute(_END, {"namespace": namespace, "type": type_})
            ended = bool(await cursor.fetchall())
        self._gate.open(namespace, type_)
        if ended:
            self._announcer.announce_ready(None)
            self._announcer.announce(Topic.PAUSE)
        return ended

    @again_when_undone
    async def pauses(self, namespace: str | None) -> list[Pause]:
        async with borrowed(self._pool) as connection:
            return await pauses_of(connection, namespace)


async def pauses_of(
    connection: AsyncConnection[TupleRow], namespace: str | None, type_: str | None = None
) -> list[Pause]:
    """With a `type_`, only those that keep such jobs from being claimed."""
    cursor = await connection.execute(_LIST, {"namespace": namespace, "type": type_})
    found = [_pause(*row) for row in await cursor.fetchall()]
    # Not by the server, whose order of texts depends on the database.
    return sorted(found, key=lambda pause: (pause.namespace, pause.type))


def _pause(namespace: str, type_: str, reason: str, by: str, since: datetime) -> Pause:
    return Pause(namespace=namespace, type=type_, reason=reason, by=by, since=since)
