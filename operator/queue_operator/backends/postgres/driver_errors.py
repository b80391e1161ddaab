"""What an error of the driver means to whoever called the store."""

import re
from typing import Final

import psycopg
from psycopg import errors

from queue_operator.domain.errors import (
    AccessRefused,
    InvalidArgument,
    MissingPrivilege,
    QueueError,
    SchemaMismatch,
    Unavailable,
)

GUIDE: Final = "docs/guides/database.md"
# What a server that does not know the session answers with: a statement that was prepared
# there, or not yet, on behalf of somebody else.
_FOREIGN_SESSION: Final = (
    errors.InvalidSqlStatementName,
    errors.DuplicatePreparedStatement,
)
_FOREIGN_SCHEMA: Final = (
    errors.UndefinedTable,
    errors.UndefinedColumn,
    errors.UndefinedFunction,
    errors.UndefinedObject,
    errors.InvalidSchemaName,
)
# Classes of SQLSTATE with which a server ends a connection, and with which it turns one away.
_NO_CONNECTION: Final = ("08", "57")
_REFUSED: Final = ("28", "3D")
_OVER_A_LIMIT: Final = "54"
# Of a connection that was not made the driver tells no SQLSTATE. In another language of the server
# it is taken for one that cannot be reached, with the server's words.
_REFUSALS: Final = re.compile(
    r"authentication failed|no password supplied|no pg_hba\.conf entry|is not permitted to log in|"
    r"permission denied for database|(role|database) \".*\" does not exist|no such (user|database)"
)
_NO_WRITES: Final = re.compile("session is read-only|server is in hot standby mode")
_NONE_LEFT: Final = re.compile(
    r"too many (clients|connections)|connection slots are reserved|no more connections allowed"
)
_NO_ROOM: Final = re.compile("No space left on device")
# By the name of an index, the argument that has to fit into it.
_INDEXED: Final = {
    "namespace_name_key": "namespace",
    "job_type_name_key": "type",
    "lane_namespace_id_type_id_priority_tags_key": "tags",
    "job_namespace_id_id_key": "id",
    "job_by_resource": "id",
    "job_by_uid": "id",
    "idempotency_pkey": "idempotency_key",
    "lease_cancelling": "assignee_id",
    "ready_failed": "error.code",
    "final_failed": "error.code",
    "pause_pkey": "type",
    "token_bucket_pkey": "bucket",
    "tombstone_pkey": "uids",
    "worker_session_pkey": "session_id",
    "session_beat_pkey": "replica",
    "rollup_hour_pkey": "type",
}


class Undone(Unavailable):
    """The server undid the transaction for a reason that a second try does not meet: it and
    another waited for each other, or a statement was prepared for the schema of yesterday.
    """


class TookTooLong(Unavailable):
    """The server ended a statement because of the time that it took."""


def is_stale_plan(error: psycopg.Error) -> bool:
    """Whether the server refused a prepared statement because its columns are others by now
    ("cached plan must not change result type"). Its words depend on the server's language.
    """
    return (
        isinstance(error, errors.FeatureNotSupported)
        and error.diag.source_function == "RevalidateCachedQuery"
    )


def named(error: psycopg.Error, role: str) -> QueueError | None:
    """The domain error for what the driver raised to `role`; None for values that the database
    refuses, about which only the caller knows what they were, and for what the driver itself
    refuses to send, which is a mistake of ours.
    """
    if isinstance(error, psycopg.DataError | psycopg.IntegrityError):
        return None
    if isinstance(error, psycopg.ProgrammingError) and error.sqlstate is None:
        return None
    if isinstance(error, errors.DeadlockDetected):
        return Undone("PostgreSQL ended a deadlock; call again")
    if isinstance(error, errors.SerializationFailure) or is_stale_plan(error):
        return Undone(f"PostgreSQL undid the transaction: {_first_line(error)}; call again")
    if isinstance(error, errors.InsufficientPrivilege):
        return MissingPrivilege(
            f"PostgreSQL refuses: {_first_line(error)}; as the owner of the schema, run "
            f"`queue-operator migrate --grant-to {role}`, or grant what {GUIDE} lists"
        )
    if isinstance(error, _FOREIGN_SESSION):
        return Unavailable(
            f"PostgreSQL refuses: {_first_line(error)}; if a pooler in transaction mode stands "
            f"in between, set database.pooler to true: see {GUIDE}"
        )
    if isinstance(error, _FOREIGN_SCHEMA):
        return SchemaMismatch(
            f"PostgreSQL refuses: {_first_line(error)}; run `queue-operator migrate`, or, if a "
            "pooler in transaction mode stands in between, set database.pooler to true: see "
            f"{GUIDE}"
        )
    if (error.sqlstate or "").startswith(_OVER_A_LIMIT):
        return _too_much(error)
    return unavailable(error)


def _too_much(error: psycopg.Error) -> QueueError:
    """The same is refused however often it is sent."""
    field = _INDEXED.get(error.diag.constraint_name or "")
    if field is not None:
        return InvalidArgument(
            field, f"is too long for an index of PostgreSQL: {_first_line(error)}; make it shorter"
        )
    return QueueError(
        f"PostgreSQL refuses what is beyond a limit of it: {_first_line(error)}; send less at "
        "once, or, where it names an index that is not the queue's, drop that"
    )


def unavailable(error: BaseException) -> Unavailable:
    """The domain error for a store that does not answer, with the driver's first line."""
    sqlstate = error.sqlstate if isinstance(error, psycopg.Error) else None
    if isinstance(error, psycopg.ProgrammingError) and sqlstate is None:
        # The driver repeats the part of the address that it did not understand, which may
        # be a part of the password.
        return Unavailable(
            "the database address is not valid; write it as "
            "postgresql://USER:PASSWORD@HOST:PORT/NAME, with special characters percent-encoded"
        )
    if isinstance(error, errors.QueryCanceled):
        return TookTooLong(f"PostgreSQL took too long: {_first_line(error)}; call again")
    # Where it stands in its log only a server that takes writes will say.
    if isinstance(error, errors.ReadOnlySqlTransaction | errors.ObjectNotInPrerequisiteState) or (
        _says(error, _NO_WRITES)
    ):
        return Unavailable(
            f"PostgreSQL takes no writes: {_first_line(error)}; if it is a standby, or was the "
            "primary before a failover, let the address lead to the primary, or name all servers "
            "in it; if default_transaction_read_only is on for this role or database, reset it"
        )
    if isinstance(error, errors.TooManyConnections) or _says(error, _NONE_LEFT):
        return Unavailable(
            f"PostgreSQL has no connection left for this user: {_first_line(error)}; close some, "
            "raise max_connections of the server or the limit of the role or database, or use "
            f"fewer: a smaller database.pool_size, fewer replicas, or a pooler, see {GUIDE}"
        )
    if isinstance(error, errors.DiskFull) or _says(error, _NO_ROOM):
        return Unavailable(
            f"PostgreSQL has no room left: {_first_line(error)}; make room on its disk"
        )
    if (sqlstate or "").startswith(_REFUSED) or _says(error, _REFUSALS):
        return AccessRefused(
            f"PostgreSQL refuses this user: {_first_line(error)}; check user, password and "
            "database name of the address"
        )
    if sqlstate is not None and not sqlstate.startswith(_NO_CONNECTION):
        return Unavailable(f"PostgreSQL refuses: {_first_line(error)}")
    return Unavailable(
        f"PostgreSQL cannot be reached: {_first_line(error)}; check the database address"
    )


def _says(error: BaseException, words: re.Pattern[str]) -> bool:
    """Whether the server said so when it let nobody in."""
    is_told = isinstance(error, psycopg.Error) and error.sqlstate is not None
    return not is_told and words.search(str(error)) is not None


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
