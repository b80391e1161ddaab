"""A shelf in a SQLite file, for the length of one transaction."""

import json
import sqlite3
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from queue_operator.backends.intake import Holder, Name
from queue_operator.backends.protocol import EventBatch
from queue_operator.backends.sql import load
from queue_operator.backends.sqlite.rows import (
    event_from,
    event_record,
    instant,
    microseconds,
    row_of,
    stored_from,
)
from queue_operator.backends.stored import Stored
from queue_operator.domain.job import Demand, Job
from queue_operator.domain.states import JobState

_ADD: Final = load(__package__, "add")
_CHILDREN: Final = load(__package__, "children")
_CHOSEN: Final = load(__package__, "chosen")
_CLAIMABLE: Final = load(__package__, "claimable")
_COMPLETED: Final = load(__package__, "completed")
_COUNTS: Final = load(__package__, "counts")
_LEASED: Final = load(__package__, "leased")
_STORE: Final = load(__package__, "store")
_USED_UP: Final = load(__package__, "used_up")
_WITHIN: Final = load(__package__, "within")


class SqliteShelf:
    """What is read becomes objects; `flush` writes those that were changed."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._read: dict[int, tuple[Stored, dict[str, Any]]] = {}
        self._new: dict[int, Stored] = {}
        self._removed: set[int] = set()
        [times] = connection.execute("SELECT swept_at, resumed_at FROM sweep")
        self._times = tuple(times)
        self.swept_at, self.resumed_at = instant(times[0]), instant(times[1])

    def flush(self) -> None:
        """Writes all changes, in one statement per kind."""
        new = [row_of(one) for one in self._new.values()]
        self._connection.executemany(_ADD, new)
        self._connection.executemany(
            "INSERT INTO job_tag VALUES (?, ?, ?)",
            [
                (one.job.namespace, tag, one.number)
                for one in self._new.values()
                for tag in one.job.tags
            ],
        )
        edges = {(e.number, one.number) for one in self._new.values() for e in one.edges}
        self._connection.executemany("INSERT INTO edge VALUES (?, ?)", sorted(edges))
        rows = ((row_of(one), before) for one, before in self._read.values())
        self._connection.executemany(_STORE, [row for row, before in rows if row != before])
        times = microseconds(self.swept_at), microseconds(self.resumed_at)
        if times != self._times:
            self._connection.execute("UPDATE sweep SET swept_at = ?, resumed_at = ?", times)

    def _rows(self, statement: str, **parameters: object) -> list[Stored]:
        return [self._met(row) for row in self._connection.execute(statement, parameters)]

    def _met(self, row: sqlite3.Row) -> Stored:
        """The one object that stands for a row."""
        if row["number"] not in self._read:
            self._read[row["number"]] = stored_from(row), dict(row)
        return self._read[row["number"]][0]

    def get(self, name: Name) -> Stored | None:
        found = self.chosen(name[0], frozenset(), [name[1]])
        return found[0] if found else None

    def holds(self, name: Name) -> bool:
        return self.get(name) is not None

    def add(self, job: Job) -> Stored:
        if not self._new:
            self._reserve()
        self._next += 1
        one = self._new[self._next] = Stored(number=self._next, job=job)
        return one

    def _reserve(self) -> None:
        row = self._connection.execute(
            "SELECT seq FROM sqlite_sequence WHERE name = 'job'"
        ).fetchone()
        self._next: int = row[0] if row else 0

    def remove(self, chosen: Collection[Stored]) -> None:
        for one in chosen:
            self._read.pop(one.number, None)
        self._connection.executemany(
            "DELETE FROM job WHERE number = ?", [(one.number,) for one in chosen]
        )
        self._connection.executemany(
            "DELETE FROM idempotency WHERE namespace = ? AND job_id = ?",
            [(one.job.namespace, one.job.id) for one in chosen],
        )

    def holder_of(self, key: Name) -> Holder | None:
        row = self._connection.execute(
            "SELECT job_id, digest FROM idempotency WHERE namespace = ? AND key = ?", key
        ).fetchone()
        return None if row is None else (row[0], row[1])

    def hold(self, key: Name, holder: Holder) -> None:
        self._connection.execute("INSERT INTO idempotency VALUES (?, ?, ?, ?)", (*key, *holder))

    def claimable(self, wanted: Demand, now: datetime, limit: int) -> list[Stored]:
        return self._rows(
            _CLAIMABLE,
            namespace=wanted.namespace,
            now=microseconds(now),
            types=json.dumps(sorted(wanted.types)),
            max_rows=limit,
            **_tags(wanted.tags),
        )

    def chosen(self, namespace: str, tags: frozenset[str], ids: Collection[str]) -> list[Stored]:
        named = json.dumps(list(ids))
        stored = self._rows(_CHOSEN, namespace=namespace, ids=named, **_tags(tags))
        wanted = set(ids)
        return stored + [
            one
            for one in self._new.values()
            if one.job.namespace == namespace and one.job.id in wanted
        ]

    def children_of(self, parent: Stored) -> list[Stored]:
        new = [
            one
            for one in self._new.values()
            if any(edge.number == parent.number for edge in one.edges)
        ]
        return self._rows(_CHILDREN, parent=parent.number) + new

    def leased(self) -> list[Stored]:
        return self._rows(_LEASED)

    def used_up(self, now: datetime) -> list[Stored]:
        return self._rows(_USED_UP, now=microseconds(now))

    def completed_before(self, at: datetime, namespace: str | None) -> list[Stored]:
        return self._rows(_COMPLETED, at=microseconds(at), namespace=namespace)

    def within(
        self, namespace: str, states: Collection[JobState], types: Collection[str]
    ) -> Iterable[tuple[int, Job]]:
        found = self._rows(
            _WITHIN,
            namespace=namespace,
            states=json.dumps(sorted(states)),
            types=json.dumps(sorted(types)),
        )
        return ((one.number, one.job) for one in found)

    def counts(self, namespace: str, tags: frozenset[str]) -> tuple[Mapping[JobState, int], int]:
        rows = self._connection.execute(_COUNTS, {"namespace": namespace, **_tags(tags)})
        counted = {JobState(state): (jobs, retries) for state, jobs, retries in rows}
        states = {state: jobs for state, (jobs, _) in counted.items()}
        return states, sum(retries for _, retries in counted.values())

    def tell(self, row: Mapping[str, object]) -> None:
        self._connection.execute("INSERT INTO event (record) VALUES (?)", (event_record(row),))

    def events(self, after: int, limit: int) -> Sequence[EventBatch]:
        rows = self._connection.execute(
            "SELECT seq, record FROM event WHERE seq > ? ORDER BY seq LIMIT ?", (after, limit)
        )
        return [event_from(seq, stored) for seq, stored in rows]


def _tags(tags: Collection[str]) -> dict[str, object]:
    return {"tags": json.dumps(sorted(tags)), "tag_count": len(tags)}
