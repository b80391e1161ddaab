"""What the server tells of itself and of our tables, by its own statistics: nothing is scanned."""

import logging
from collections.abc import Callable
from typing import Any, Final, LiteralString

from queue_operator.backends.postgres.connection import SCHEMA, Pool, borrowed
from queue_operator.backends.postgres.grants import TABLES
from queue_operator.backends.server_figures import DatabaseFigures, PoolUsage
from queue_operator.backends.sql import load
from queue_operator.domain.errors import MissingPrivilege

logger = logging.getLogger(__name__)

_SIZE: Final = load(__package__, "survey_size")
_TABLES: Final = load(__package__, "survey_tables")
_SESSIONS: Final = load(__package__, "survey_sessions")
_STATES: Final = ("active", "idle", "idle_in_transaction", "other")


class Surveying:
    """The protocols `Pooled` and `Surveyed`."""

    _pool: Pool

    def pool_usage(self) -> PoolUsage:
        found = self._pool.get_stats()
        idle = found["pool_available"]
        return PoolUsage(
            idle=idle,
            busy=max(0, found["pool_size"] - idle),
            most=self._pool.max_size,
            waiters=found["requests_waiting"],
        )

    def on_wait(self, observe: Callable[[float], None]) -> None:
        self._pool.on_wait = observe

    async def database_figures(self) -> DatabaseFigures:
        """What one of the looks may not see does not keep the others from it."""
        parameters = {"schema": SCHEMA, "tables": list(TABLES)}
        [(size,)] = await self._rows(_SIZE) or [(None,)]
        tables = await self._rows(_TABLES, parameters) or []
        [(hidden, *counts, oldest_s)] = await self._rows(_SESSIONS) or [(1, None)]
        return DatabaseFigures(
            size_bytes=size,
            table_bytes={table: taken for table, taken, _ in tables},
            dead_rows={table: dead for table, _, dead in tables},
            oldest_transaction_s=None if hidden else oldest_s,
            connections=None if hidden else dict(zip(_STATES, counts, strict=True)),
        )

    async def _rows(
        self, statement: LiteralString, parameters: dict[str, Any] | None = None
    ) -> list[Any] | None:
        """None where the role may not ask."""
        try:
            async with borrowed(self._pool) as connection:
                return await (await connection.execute(statement, parameters)).fetchall()
        except MissingPrivilege as error:
            logger.debug("not asked for: %s", error)
            return None
