"""Brings the schema up to date: forward only, safe from several replicas at once, and without
holding up those who work meanwhile.

What is missing is one transaction. It gives up when it has to wait for a lock for longer than
`lock_timeout_s`, because whoever comes later stands behind it, and is tried again from the start
after a pause. Indexes on tables that may be large are built outside of it (`building`), where
nobody waits for them; a file that does so has the line `-- outside a transaction`.
"""

import asyncio
import hashlib
import logging
import re
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final, LiteralString

import psycopg
from psycopg import AsyncConnection, IsolationLevel, sql
from psycopg.rows import TupleRow

from queue_operator.backends.postgres.building import build, split
from queue_operator.backends.postgres.driver_errors import unavailable
from queue_operator.backends.postgres.grants import check_exists, check_granted, check_role, grant
from queue_operator.backends.postgres.line import address
from queue_operator.backends.sql import load, render
from queue_operator.domain.errors import MissingPrivilege, SchemaMismatch, Unavailable

LOCK_TIMEOUT_S: Final = 0.5
"""Below the second after which the server looks for deadlocks: it is we who give way then."""
PATIENCE_S: Final = 300.0

_TABLE: Final = load(__package__, "migration_table")
_LIST: Final = load(__package__, "migration_list")
_RECORD: Final = load(__package__, "migration_record")
_PLACE: Final = load(__package__, "migration_place")
# Any number will do, as long as every replica takes the same.
_ADVISORY_LOCK: Final = 7_164_002
# Held while indexes are built, and only ever tried: a statement that waits for a lock is older than
# what comes after it, so that the build would wait for who waits for the build.
_BUILDING_LOCK: Final = 7_164_003
_PAUSE_S: Final = 1.0
_GLANCE_S: Final = 0.1
_NEEDS: Final = re.compile(r"^-- needs: (\S+)$", re.MULTILINE)
_OUTSIDE: Final = re.compile(r"^-- outside a transaction$", re.MULTILINE)
# For the transaction only, which is all that holds behind a pooler. What is set for the role
# must neither end a long migration nor change what it makes.
_SETTINGS: Final[LiteralString] = """
SET LOCAL search_path = queue_operator;
SET LOCAL timezone = 'UTC';
SET LOCAL statement_timeout = 0;
SET LOCAL idle_in_transaction_session_timeout = 0;
SELECT set_config(name, '0', true) FROM pg_settings WHERE name = 'transaction_timeout';
"""
_CONNECT_TIMEOUT_S: Final = 5

Say = Callable[[str], None]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Migration:
    """`text` is the file; the state names are written into it when it is applied."""

    name: str
    text: str

    @property
    def statements(self) -> LiteralString:
        return render(self.text)

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def needs(self) -> str | None:
        """The migration that a release must know to work on the schema from here on. A file
        says it in a line of its own, `-- needs: NAME`; without one all older releases go on.
        """
        found = _NEEDS.search(self.text)
        return found[1] if found else None

    @property
    def is_outside(self) -> bool:
        """Whether its statements run outside a transaction, each of which may find itself done."""
        return _OUTSIDE.search(self.text) is not None


@dataclass(frozen=True, slots=True)
class Applied:
    """A migration that a database has, possibly of another release."""

    name: str
    checksum: str
    needs: str | None


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do: `grant_to` is a role that is to run the queue, `say` tells people."""

    shipped: Sequence[Migration]
    grant_to: str | None
    lock_timeout_s: float
    patience_s: float
    say: Say


def migrations() -> list[Migration]:
    """All of this release, in order."""
    return read_migrations(files(__package__) / "migrations")


def read_migrations(folder: Traversable) -> list[Migration]:
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return [Migration(name.removesuffix(".sql"), (folder / name).read_text()) for name in names]


async def migrate(
    dsn: str,
    *,
    grant_to: str | None = None,
    lock_timeout_s: float = LOCK_TIMEOUT_S,
    patience_s: float = PATIENCE_S,
    shipped: Sequence[Migration] | None = None,
    say: Say = logger.info,
) -> list[str]:
    """Applies what is missing and gives the names of what was applied.

    Raises SchemaMismatch when the database belongs to another line of releases,
    MissingPrivilege when the role may not do it, InvalidArgument for a role to grant to that
    does not exist, and Unavailable when the server cannot be reached or others hold a lock for
    longer than `patience_s`.
    """
    if grant_to is not None:
        check_role(grant_to)
    known = migrations() if shipped is None else shipped
    plan = Plan(known, grant_to, lock_timeout_s, patience_s, say)
    try:
        conninfo = address(
            dsn, application_name="queue-operator-migrate", connect_timeout=_CONNECT_TIMEOUT_S
        )
        return await _insist(conninfo, plan)
    except psycopg.Error as error:
        if error.sqlstate is None or isinstance(error, psycopg.OperationalError):
            raise unavailable(error) from None
        raise Unavailable(f"the migration failed and was undone: {_first_line(error)}") from None


async def _insist(conninfo: str, plan: Plan) -> list[str]:
    """Tries until no lock is in the way."""
    end = time.monotonic() + plan.patience_s
    done: list[str] = []
    while True:
        try:
            while outside := await _once(conninfo, plan, end, done):
                await _build(conninfo, plan, end, outside, done)
        except (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected):
            if time.monotonic() + _PAUSE_S > end:
                changed = f"{', '.join(done)} applied, no more" if done else "nothing was changed"
                raise Unavailable(
                    f"others held a lock for {plan.patience_s:g} s: {changed}; look for "
                    "old transactions in pg_stat_activity and try again"
                ) from None
        else:
            return done
        plan.say(
            f"a lock was not to be had within {plan.lock_timeout_s:g} s: undone, "
            f"trying again in {_PAUSE_S:g} s"
        )
        await asyncio.sleep(_PAUSE_S)


async def _once(conninfo: str, plan: Plan, end: float, done: list[str]) -> Migration | None:
    """Applies what is missing up to what is to be applied outside a transaction, and gives that."""
    async with _session(conninfo) as connection:
        await connection.execute(_SETTINGS)
        missing = _missing(plan.shipped, await _applied(connection))
        if plan.grant_to is not None:
            # Before anything is changed for good.
            await check_exists(connection, plan.grant_to)
        if missing and missing[0].is_outside:
            return missing[0]
        if not missing and plan.grant_to is None:
            # Without a lock, and without a right but that to read.
            return None
        await _wait_for_turn(connection, plan, end)
        applied, outside = await _apply_missing(connection, plan)
        if plan.grant_to is not None and outside is None:
            plan.say(f"granting what the queue needs to {plan.grant_to}")
            await grant(connection, plan.grant_to)
    done += applied
    return outside


async def _build(
    conninfo: str, plan: Plan, end: float, migration: Migration, done: list[str]
) -> None:
    """One process builds, the others wait. The lock is that of a transaction which looks at
    nothing meanwhile, so the build does not wait for it, and it holds behind a pooler.
    """
    waits = False
    while True:
        async with _session(conninfo) as connection:
            await connection.execute(_SETTINGS)
            if await _got(connection, _BUILDING_LOCK):
                if migration in _missing(plan.shipped, await _applied(connection)):
                    plan.say(f"applying {migration.name}, beside those who work")
                    await _build_indexes(conninfo, plan, end, migration)
                    await _record(connection, migration)
                    done.append(migration.name)
                return
        if not waits:
            plan.say("another process builds indexes: waiting for it")
            waits = True
        if time.monotonic() > end:
            raise Unavailable(
                f"another process has built indexes for {plan.patience_s:g} s and goes on: wait, "
                "and try again"
            )
        await asyncio.sleep(_GLANCE_S)


async def _build_indexes(conninfo: str, plan: Plan, end: float, migration: Migration) -> None:
    wait_s = max(end - time.monotonic(), plan.lock_timeout_s)
    try:
        statements = split(migration.statements)
        await build(conninfo, statements, lock_timeout_s=wait_s, say=plan.say)
    except psycopg.errors.LockNotAvailable:
        raise Unavailable(
            f"others held a transaction open for {wait_s:g} s: {migration.name} is not done, and "
            "goes on where it stood when this is run again; look for old transactions in "
            "pg_stat_activity"
        ) from None


@asynccontextmanager
async def _session(conninfo: str) -> AsyncIterator[AsyncConnection[TupleRow]]:
    """One transaction on a connection of its own."""
    connection = await AsyncConnection.connect(conninfo, autocommit=True, prepare_threshold=None)
    # Whoever waited for its turn must see what was done in the meantime.
    await connection.set_isolation_level(IsolationLevel.READ_COMMITTED)
    async with connection:
        try:
            async with connection.transaction():
                yield connection
        except psycopg.errors.InsufficientPrivilege as error:
            raise _may_not(error, connection.info.user) from None


async def _wait_for_turn(connection: AsyncConnection[TupleRow], plan: Plan, end: float) -> None:
    """Held to the end of the transaction: another replica waits, then finds all done."""
    if not await _got(connection, _ADVISORY_LOCK):
        plan.say("another process migrates this database: waiting for it")
        await _limit_waiting(connection, max(end - time.monotonic(), plan.lock_timeout_s))
        await connection.execute("SELECT pg_advisory_xact_lock(%s)", (_ADVISORY_LOCK,))
    await _limit_waiting(connection, plan.lock_timeout_s)


async def _got(connection: AsyncConnection[TupleRow], lock: int) -> bool:
    cursor = await connection.execute("SELECT pg_try_advisory_xact_lock(%s)", (lock,))
    return await cursor.fetchone() == (True,)


async def _limit_waiting(connection: AsyncConnection[TupleRow], seconds: float) -> None:
    limit = sql.Literal(int(seconds * 1000))
    await connection.execute(sql.SQL("SET LOCAL lock_timeout = {}").format(limit))


async def _apply_missing(
    connection: AsyncConnection[TupleRow], plan: Plan
) -> tuple[list[str], Migration | None]:
    """Up to what is to be applied outside a transaction, which is given as well."""
    await _prepare(connection)
    applied: list[str] = []
    for migration in _missing(plan.shipped, await _applied(connection)):
        if migration.is_outside:
            return applied, migration
        plan.say(f"applying {migration.name}")
        await connection.execute(migration.statements)
        await _record(connection, migration)
        applied.append(migration.name)
    return applied, None


async def _record(connection: AsyncConnection[TupleRow], migration: Migration) -> None:
    values = {"name": migration.name, "checksum": migration.checksum, "needs": migration.needs}
    await connection.execute(_RECORD, values)


async def _prepare(connection: AsyncConnection[TupleRow]) -> None:
    """Makes the schema and the list of migrations. To ask the server to do so only if they do
    not exist would need rights that a role need not have once they do.
    """
    has_schema, has_table = await _place(connection)
    if not has_schema:
        await connection.execute("CREATE SCHEMA queue_operator")
    if not has_table:
        await connection.execute(_TABLE)


async def _place(connection: AsyncConnection[TupleRow]) -> tuple[bool, bool]:
    row = await (await connection.execute(_PLACE)).fetchone()
    has_schema, has_table = row or (False, False)
    return has_schema, has_table


async def _applied(connection: AsyncConnection[TupleRow]) -> list[Applied]:
    _, has_table = await _place(connection)
    if not has_table:
        return []
    rows = await (await connection.execute(_LIST)).fetchall()
    return [Applied(*row) for row in rows]


def _missing(shipped: Sequence[Migration], applied: Sequence[Applied]) -> list[Migration]:
    """What is to be applied. Raises SchemaMismatch where that cannot be told."""
    _check_fits(shipped, applied)
    there = {one.name for one in applied}
    missing = [migration for migration in shipped if migration.name not in there]
    later = max(there, default="")
    if missing and missing[0].name < later:
        raise SchemaMismatch(
            f"migration {missing[0].name} was never applied, but {later} was, which comes after "
            "it: the database belongs to another line of releases"
        )
    return missing


def _check_fits(shipped: Sequence[Migration], applied: Sequence[Applied]) -> None:
    """Migrations that are unknown here are those of newer releases, and no obstacle unless they
    say so: while a new release is rolled out, both work on its schema.
    """
    ours = {migration.name: migration.checksum for migration in shipped}
    for one in applied:
        if one.checksum != ours.get(one.name, one.checksum):
            raise SchemaMismatch(
                f"migration {one.name} was applied with other content than this release ships; "
                "restore the database or install the release that wrote it"
            )
        if one.needs is not None and one.needs not in ours:
            raise SchemaMismatch(
                f"since migration {one.name} the database needs a release that knows "
                f"{one.needs}, and this one does not: install a newer one"
            )


def _may_not(error: psycopg.Error, user: str) -> MissingPrivilege:
    role = sql.Identifier(user).as_string()
    return MissingPrivilege(
        f"role {role} may not migrate: {_first_line(error)}; it must own the schema and its "
        f"tables: as an administrator, CREATE SCHEMA queue_operator AUTHORIZATION {role}"
    )


def _first_line(error: psycopg.Error) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


async def check_schema(
    connection: AsyncConnection[TupleRow], shipped: Sequence[Migration] | None = None
) -> None:
    """Raises SchemaMismatch unless every migration has been applied, and none since that older
    releases cannot live with; MissingPrivilege when the role may not use what they made.
    """
    known = migrations() if shipped is None else shipped
    await check_granted(connection)
    applied = await _applied(connection)
    _check_fits(known, applied)
    there = {one.name for one in applied}
    missing = [migration.name for migration in known if migration.name not in there]
    if missing:
        raise SchemaMismatch(
            f"the database schema lacks {', '.join(missing)}: run `queue-operator migrate`"
        )
