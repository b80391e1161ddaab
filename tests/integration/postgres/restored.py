"""A database as a restored dump leaves it."""

from typing import Final

import psycopg
from psycopg import sql

from queue_operator.backends.postgres.grants import TABLES

_SNAPSHOTS: Final = ("roll_up_progress", "count_progress")
_NAME_TRANSACTIONS: Final = ("job_event", "count_delta", "arrival", "lease_check", *_SNAPSHOTS)
_IDENTITIES: Final = (
    *(("job_event", "seq"), ("namespace", "id"), ("job_type", "id"), ("lane", "id")),
    *(("mirror_outbox", "sequence"), ("worker_session", "opening")),
    *(("webhook_batch", "number"), ("webhook_message", "number"), ("webhook_count", "id")),
)


def restore(source: str, target: str, shift: int) -> None:
    """All rows anew, and transactions that mean others, or none yet, there: their numbers are
    `shift` more than in the source.
    """
    with psycopg.connect(source) as one, psycopg.connect(target) as two:
        for name in TABLES:
            if name != "schema_migration":
                two.execute(sql.SQL("TRUNCATE {} CASCADE").format(_table(name)))
        for name in ("namespace", "job_type", "lane", *TABLES):
            _copy(one, two, name)
        for name in _NAME_TRANSACTIONS:
            shifted = sql.SQL("UPDATE {} SET xid = ((xid::text::bigint + %s)::text)::xid8")
            two.execute(shifted.format(_table(name)), [shift])
        for name in _SNAPSHOTS:
            _shift_snapshot(two, name, shift)
        for name, column in _IDENTITIES:
            highest = sql.SQL("SELECT setval(pg_get_serial_sequence({}, {}), max({})) FROM {}")
            key = sql.Identifier(column)
            two.execute(highest.format(f"queue_operator.{name}", column, key, _table(name)))
        two.execute("SELECT setval('queue_operator.job_no_block', 1000000)")


def _table(name: str) -> sql.Identifier:
    return sql.Identifier("queue_operator", name)


def _copy(
    one: psycopg.Connection[tuple[object, ...]],
    two: psycopg.Connection[tuple[object, ...]],
    name: str,
) -> None:
    table = _table(name)
    empty = two.execute(sql.SQL("SELECT FROM {} LIMIT 1").format(table)).fetchone() is None
    if name == "schema_migration" or not empty:
        return
    with (
        one.cursor().copy(sql.SQL("COPY {} TO STDOUT").format(table)) as rows,
        two.cursor().copy(sql.SQL("COPY {} FROM STDIN").format(table)) as into,
    ):
        for row in rows:
            into.write(row)


def _shift_snapshot(
    connection: psycopg.Connection[tuple[object, ...]], name: str, shift: int
) -> None:
    found = connection.execute(
        sql.SQL("SELECT snapshot::text FROM {}").format(_table(name))
    ).fetchone()
    assert found is not None
    lowest, end, opened = str(found[0]).split(":")
    listed = ",".join(str(int(xid) + shift) for xid in opened.split(",") if xid)
    connection.execute(
        sql.SQL("UPDATE {} SET snapshot = %s::pg_snapshot").format(_table(name)),
        [f"{int(lowest) + shift}:{int(end) + shift}:{listed}"],
    )
