"""The rights that a role needs to run the queue, and no more: it neither owns nor changes the
schema.
"""

import shlex
from collections.abc import Iterator
from typing import Final

from psycopg import AsyncConnection, sql
from psycopg.rows import TupleRow

from queue_operator.backends.postgres.connection import SCHEMA
from queue_operator.backends.sql import load
from queue_operator.domain.errors import InvalidArgument, MissingPrivilege

_MISSING: Final = load(__package__, "privileges_missing")
_OWNER: Final = load(__package__, "privileges_owner")
_PRIVILEGES: Final = ("SELECT", "INSERT", "UPDATE", "DELETE")
_READ_ONLY: Final = ("schema_migration",)
SEQUENCES: Final = (
    *("job_no_block", "lane_id_seq"),
    *("signal_ready", "signal_cancel", "signal_mirror", "signal_session", "signal_pause"),
)
# Named one by one: a table that a newer release brought must not be missed by this one.
TABLES: Final = (
    *("namespace", "job_type", "lane", "job", "ready", "lease", "final", "attempt"),
    *("transition", "dependency", "parent_result", "idempotency", "job_event", "lane_count"),
    *("kind_count", "namespace_count", "lane_waiting", "count_progress"),
    *("count_delta", "mirror_outbox", "detached", "worker_session", "sweep"),
    *("lease_check", "progress", "session_beat", "lost_worker"),
    *(
        "checkpoint",
        "spawned",
        "log_chunk",
        "callback",
        "pause",
        "roll_up",
        "roll_up_latency",
        "roll_up_progress",
        "token_bucket",
        "arrival",
        "rollup_hour",
        "pipeline_checkpoint",
        "event_pruned",
        "tombstone",
        "suspension",
        "figure_leader",
        "figure_progress",
        "figure_name",
        "webhook_batch",
        "webhook_message",
        "webhook_count",
        "schema_migration",
    ),
)
# What a later migration of the same owner makes is granted with it, or else the release that
# brings a table would find it closed.
_GRANTS: Final = (
    "GRANT USAGE ON SCHEMA {schema} TO {role}",
    "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {role}",
    *(f"REVOKE INSERT, UPDATE, DELETE ON {{schema}}.{table} FROM {{role}}" for table in _READ_ONLY),
    "GRANT USAGE ON ALL SEQUENCES IN SCHEMA {schema} TO {role}",
    "ALTER DEFAULT PRIVILEGES IN SCHEMA {schema} "
    "GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO {role}",
    "ALTER DEFAULT PRIVILEGES IN SCHEMA {schema} GRANT USAGE ON SEQUENCES TO {role}",
)
_NAME_BYTES: Final = 63
_NAMED: Final = 5


def needed(table: str) -> tuple[str, ...]:
    """The privileges that the queue needs on a table."""
    return _PRIVILEGES[:1] if table in _READ_ONLY else _PRIVILEGES


def check_role(role: str) -> None:
    """Raises InvalidArgument for what cannot be the name of one role."""
    if not role or "\0" in role or len(role.encode()) > _NAME_BYTES:
        raise InvalidArgument("grant_to", f"must be the name of a role, 1 to {_NAME_BYTES} bytes")


async def check_exists(connection: AsyncConnection[TupleRow], role: str) -> None:
    """Raises InvalidArgument when there is no such role."""
    # Not left to the server, for which `public` would be everybody, even in quotes.
    known = await connection.execute("SELECT FROM pg_roles WHERE rolname = %s", (role,))
    if await known.fetchone() is None:
        raise InvalidArgument("grant_to", f"there is no role {role!r}; CREATE ROLE makes one")


async def grant(connection: AsyncConnection[TupleRow], role: str) -> None:
    """Raises InvalidArgument when there is no such role, MissingPrivilege when the one that is
    connected does not own what is to be granted.
    """
    await check_exists(connection, role)
    owners = await connection.execute(_OWNER, {"role": role})
    # Taking a right from it would stand in the way of the next migration.
    if await owners.fetchone() is not None:
        raise InvalidArgument("grant_to", f"{role!r} owns the tables, and needs no grant")
    for statement in statements(role):
        await connection.execute(statement)
    # A grant of what is not one's own is a warning only.
    if missing := await _missing(connection, role):
        raise MissingPrivilege(
            f"role {connection.info.user!r} cannot grant {_some(missing)}: "
            "run this as the owner of the schema and its tables"
        )


def statements(role: str) -> Iterator[sql.Composed]:
    """What is granted, in SQL."""
    for text in _GRANTS:
        yield sql.SQL(text).format(schema=sql.Identifier(SCHEMA), role=sql.Identifier(role))


async def check_granted(connection: AsyncConnection[TupleRow]) -> None:
    """Raises MissingPrivilege, naming all that the connected role lacks."""
    if missing := await _missing(connection, None):
        role = connection.info.user
        raise MissingPrivilege(
            f"role {role!r} lacks {_some(missing)}: have the owner of the schema run "
            f"`queue-operator migrate --grant-to {shlex.quote(role)}`"
        )


async def _missing(connection: AsyncConnection[TupleRow], role: str | None) -> list[str]:
    parameters = {
        "role": role,
        "tables": list(TABLES),
        "privileges": list(_PRIVILEGES),
        "read_only": list(_READ_ONLY),
        "sequences": list(SEQUENCES),
    }
    cursor = await connection.execute(_MISSING, parameters)
    return [lacking for _, lacking in await cursor.fetchall()]


def _some(missing: list[str]) -> str:
    more = len(missing) - _NAMED
    return ", ".join(missing[:_NAMED]) + (f" and {more} more" if more > 0 else "")
