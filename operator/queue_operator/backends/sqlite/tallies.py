"""Tallies as rows, and counts of jobs from an index alone."""

import sqlite3
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final, NamedTuple

from pydantic import TypeAdapter

from queue_operator.backends.sql import load
from queue_operator.backends.sqlite.rows import microseconds
from queue_operator.backends.tallies import JobKind, Part, Standing, Tally, standing_from
from queue_operator.domain.ordering import Priority

_GET: Final = load(__package__, "tally_get")
_KEEP: Final = load(__package__, "tally_keep")
_WITHIN: Final = load(__package__, "tally_within")
_FORGET: Final = load(__package__, "tally_forget")
_STANDING: Final = load(__package__, "standing")
_TALLY: Final = TypeAdapter(Tally)


class TallyName(NamedTuple):
    """The key of a tally."""

    namespace: str
    span_s: int
    begins_us: int
    type: str
    priority: str


def get(connection: sqlite3.Connection, name: TallyName) -> Tally:
    row = connection.execute(_GET, name._asdict()).fetchone()
    return Tally() if row is None else _TALLY.validate_json(row[0])


def keep(connection: sqlite3.Connection, changed: Mapping[TallyName, Tally]) -> None:
    connection.executemany(
        _KEEP, [(*name, _TALLY.dump_json(tally).decode()) for name, tally in changed.items()]
    )


def within(
    connection: sqlite3.Connection, namespace: str, parts: Sequence[Part]
) -> list[tuple[JobKind, Tally]]:
    return [
        (JobKind(kind, Priority(priority)), _TALLY.validate_json(record))
        for part in parts
        for kind, priority, record in connection.execute(
            _WITHIN,
            {
                "namespace": namespace,
                "span_s": part.span_s,
                "since": microseconds(part.begins_at),
                "until": microseconds(part.ends_at),
            },
        )
    ]


def forget(connection: sqlite3.Connection, span_s: int, oldest: datetime) -> None:
    connection.execute(_FORGET, {"span_s": span_s, "oldest": microseconds(oldest)})


def standing(
    connection: sqlite3.Connection, namespace: str, now: datetime
) -> dict[JobKind, Standing]:
    """Jobs that have not ended."""
    wanted = {"namespace": namespace, "now": microseconds(now)}
    return standing_from(connection.execute(_STANDING, wanted))
