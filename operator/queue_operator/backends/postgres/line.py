"""One connection: it hangs up on a server that keeps silent, and prepares a statement anew whose
plan no longer fits the schema.
"""

import asyncio
import logging
import os
import socket
from typing import Any, Final, Self

import psycopg
from psycopg import AsyncConnection, AsyncCursor
from psycopg.abc import RV, Params, PQGen
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import Conninfo, TransactionStatus
from psycopg.rows import Row, TupleRow

from queue_operator.backends.postgres.driver_errors import is_stale_plan
from queue_operator.domain.addresses import NO_ADDRESS, check_postgres_address, options_of
from queue_operator.domain.errors import InvalidArgument

_MARGIN_S: Final = 0.5
_CANCEL_S: Final = 1.0
_PATIENCE_S: Final = 5.0
_GLANCE_S: Final = 60.0
"""How often the driver looks up while it waits, unasked ten times a second: a loop of events
interrupts it anyway.
"""
_OPTIONS: Final[dict[str, str | int]] = {
    "application_name": "queue-operator",
    "client_encoding": "UTF8",
    # After a failover an old primary may still answer under the old address.
    "target_session_attrs": "read-write",
    # The kernel notices a peer that vanished without a word within about 10 s.
    "keepalives_idle": 4,
    "keepalives_interval": 2,
    "keepalives_count": 3,
}

logger = logging.getLogger(__name__)


class Line(AsyncConnection[TupleRow]):
    """`patience_s` is for each exchange with the server, not for all that is done with the
    connection. `worn` says that nobody should get it again, nor others made before now; `role` is
    the user of the server that it is for; `history` is the one that it leads to, where that is
    known.
    """

    patience_s = _PATIENCE_S
    worn = False
    role = ""
    history = ""
    _answer_by: float | None = None
    _watch: asyncio.TimerHandle | None = None
    _given_up = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.cursor_factory = _Cursor

    async def wait(self, gen: PQGen[RV], *args: Any, **kwargs: Any) -> RV:
        """Every exchange with the server comes through here.

        A server that was stopped, or a line that was cut without a word, would keep us waiting
        for ever, and even a cancel would wait with us.
        """
        self._expect_within(self.patience_s + _MARGIN_S)
        if not args:
            kwargs.setdefault("interval", _GLANCE_S)
        try:
            return await super().wait(gen, *args, **kwargs)
        except psycopg.OperationalError as error:
            if not self._given_up:
                raise
            raise psycopg.OperationalError("the server did not answer in time") from error
        finally:
            self._answer_by = None

    async def cancel_safe(self, *, timeout: float = _CANCEL_S) -> None:
        """The request to cancel goes by a line of its own, which may be as silent as this one."""
        self._expect_within(2 * _CANCEL_S)
        await super().cancel_safe(timeout=min(timeout, _CANCEL_S))

    def _expect_within(self, seconds: float) -> None:
        """One timer watches many exchanges: to set and cancel one for each would cost more than
        the rest of this class.
        """
        loop = asyncio.get_running_loop()
        self._answer_by = loop.time() + seconds
        if self._watch is None or self._watch.when() > self._answer_by:
            if self._watch is not None:
                self._watch.cancel()
            self._watch = loop.call_at(self._answer_by, self._look)

    def _look(self) -> None:
        self._watch = None
        if self.closed or self._answer_by is None:
            return
        loop = asyncio.get_running_loop()
        if loop.time() < self._answer_by:
            self._watch = loop.call_at(self._answer_by, self._look)
        else:
            self._hang_up()

    def _hang_up(self) -> None:
        logger.warning("PostgreSQL did not answer in time: hanging up")
        self._given_up = True
        with socket.socket(fileno=os.dup(self.fileno())) as line:
            line.shutdown(socket.SHUT_RDWR)


class _Cursor(AsyncCursor[Row]):
    async def execute(self, query: Any, params: Params | None = None, **options: Any) -> Self:
        try:
            return await super().execute(query, params, **options)
        except psycopg.errors.FeatureNotSupported as error:
            line = self.connection
            alone = line.info.transaction_status is TransactionStatus.IDLE
            if not (alone and is_stale_plan(error) and isinstance(line, Line)):
                raise
            # The statement was a transaction of its own, of which nothing was done.
            line.worn = True
            return await super().execute(query, params, **{**options, "prepare": False})


def address(dsn: str, **options: str | int) -> str:
    """`dsn` with what we need, where it does not say otherwise. Raises InvalidArgument, which tells
    nothing of it that may be a part of the password.
    """
    return make_conninfo(**{**_OPTIONS, **options, **checked("dsn", dsn)})


def checked(field: str, dsn: str) -> dict[str, Any]:
    """The parts of an address. Raises InvalidArgument as `address`."""
    check_postgres_address(field, dsn)
    try:
        return conninfo_to_dict(dsn)
    except psycopg.ProgrammingError:
        known = {option.keyword.decode() for option in Conninfo.get_defaults()}
        unknown = [name for name in options_of(dsn) if name not in known]
        reason = f"has an unknown option {unknown[0]}" if unknown else NO_ADDRESS
        raise InvalidArgument(field, reason) from None


def hosts(conninfo: str) -> int:
    """How many servers an address names; each may take its time to say no."""
    given = conninfo_to_dict(conninfo)
    named = given.get("hostaddr") or given.get("host") or ""
    return len(str(named).split(","))
