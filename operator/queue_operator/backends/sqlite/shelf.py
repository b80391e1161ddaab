"""A shelf in a SQLite file, for the length of one transaction."""

import json
import sqlite3
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final

from queue_operator.backends.intake import Holder, Name
from queue_operator.backends.paging import encode_cursor
from queue_operator.backends.protocol import (
    COUNT_BOUND,
    LOG_ATTEMPTS,
    LOG_BYTES,
    LOG_LINES,
    EventBatch,
    FailurePage,
    FailureSearch,
    JobPage,
    JobSearch,
    LogLine,
    Pause,
    SearchOrder,
    Topic,
)
from queue_operator.backends.shelf import Glimpse
from queue_operator.backends.sql import load
from queue_operator.backends.sqlite import finding, tallies
from queue_operator.backends.sqlite.outbox import SqliteOutbox
from queue_operator.backends.sqlite.rows import (
    Row,
    event_from,
    event_record,
    glimpse_from,
    instant,
    log_from,
    log_record,
    microseconds,
    optional_us,
    row_of,
    stored_from,
)
from queue_operator.backends.sqlite.signals import announce
from queue_operator.backends.sqlite.tallies import TallyName
from queue_operator.backends.stored import Stored
from queue_operator.backends.tallies import JobKind, Part, Standing, Tally
from queue_operator.backends.tokens import Bucket
from queue_operator.domain import record
from queue_operator.domain.job import Demand, Job
from queue_operator.domain.log_cursor import Span
from queue_operator.domain.outcome import ErrorCategory
from queue_operator.domain.states import JobState

_ADD: Final = load(__package__, "add")
_AHEAD: Final = load(__package__, "ahead")
_BUCKET_KEEP: Final = load(__package__, "bucket_keep")
_CHILDREN: Final = load(__package__, "children")
_CLAIMABLE: Final = load(__package__, "claimable")
_COMPLETED: Final = load(__package__, "completed")
_COUNTS: Final = load(__package__, "counts")
_COUNTS_TAGGED: Final = load(__package__, "counts_tagged")
_EVENTS: Final = "SELECT seq, record FROM event WHERE seq > ? ORDER BY seq LIMIT ?"
_GET: Final = load(__package__, "get")
_GLIMPSE: Final = load(__package__, "glimpse")
_LEASED: Final = load(__package__, "leased")
_LOG_FORGET: Final = load(__package__, "log_forget")
_LOG_PRUNE: Final = load(__package__, "log_prune")
_LOG_READ: Final = load(__package__, "log_read")
_LAST_EVENT: Final = "SELECT seq, record FROM event ORDER BY seq DESC LIMIT 1"
_NAMED: Final = load(__package__, "named")
_NAMED_NUMBERS: Final = load(__package__, "named_numbers")
_NUMBERED: Final = load(__package__, "numbered")
_PUT_PAUSE: Final = load(__package__, "put_pause")
_STORE: Final = load(__package__, "store")
_TAGGED: Final = load(__package__, "tagged")
_TAGGED_ENDED: Final = load(__package__, "tagged_ended")
_USED_UP: Final = load(__package__, "used_up")
_PART: Final = 1000


class SqliteShelf:
    """What is read becomes objects; `flush` writes those that were changed."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.outbox = SqliteOutbox(connection)
        self._known: dict[Name, Stored] = {}
        self._rows: dict[int, Row] = {}
        self._new: dict[int, Stored] = {}
        self._topics: set[Topic] = set()
        self._tallies: dict[TallyName, Tally] = {}
        self._last_number: int | None = None
        [times] = connection.execute("SELECT swept_at, resumed_at FROM sweep")
        self._times = tuple(times)
        self.swept_at, self.resumed_at = (None if us is None else instant(us) for us in times)

    def flush(self) -> None:
        """Writes all changes, in one statement per kind, and announces them. A query that asks
        for what may have been changed before in the transaction comes after it.
        """
        added = self._add_new()
        known = [one for one in self._known.values() if one.number in self._rows]
        changed = [one for one in known if one != stored_from(self._rows[one.number])]
        stored = [row_of(one) for one in changed]
        self._connection.executemany(_STORE, stored)
        self._rows |= {row["number"]: row for row in (*added, *stored)}
        times = optional_us(self.swept_at), optional_us(self.resumed_at)
        if times != self._times:
            self._connection.execute("UPDATE sweep SET swept_at = ?, resumed_at = ?", times)
            self._times = times
        tallies.keep(self._connection, self._tallies)
        self._tallies.clear()
        announce(self._connection, self._topics)
        self._topics.clear()

    def _add_new(self) -> list[Row]:
        rows: list[Row] = [row_of(one) for one in self._new.values()]
        tags = [
            (one.job.namespace, tag, one.number)
            for one in self._new.values()
            for tag in one.job.tags
        ]
        edges = {(e.number, one.number) for one in self._new.values() for e in one.edges}
        self._connection.executemany(_ADD, rows)
        self._connection.executemany("INSERT INTO job_tag VALUES (?, ?, ?)", tags)
        self._connection.executemany("INSERT INTO edge VALUES (?, ?)", sorted(edges))
        self._new.clear()
        return rows

    def _find(self, statement: str, **parameters: object) -> list[Stored]:
        return [self._met(row) for row in self._connection.execute(statement, parameters)]

    def _met(self, row: sqlite3.Row) -> Stored:
        """The one object that stands for a row."""
        name = row["namespace"], row["id"]
        if name not in self._known:
            self._known[name] = stored_from(dict(row))
            self._rows[row["number"]] = dict(row)
        return self._known[name]

    def get(self, name: Name) -> Stored | None:
        if name in self._known:
            return self._known[name]
        found = self._find(_GET, namespace=name[0], id=name[1])
        return found[0] if found else None

    def holds(self, name: Name) -> bool:
        return self.get(name) is not None

    def add(self, job: Job) -> Stored:
        number = (self._last_number or self._highest_number()) + 1
        one = self._known[job.namespace, job.id] = Stored(number=number, job=job)
        self._last_number = number
        self._new[number] = one
        return one

    def _highest_number(self) -> int:
        row = self._connection.execute(
            "SELECT seq FROM sqlite_sequence WHERE name = 'job'"
        ).fetchone()
        return row[0] if row else 0

    def remove(self, chosen: Collection[Stored]) -> None:
        names = [(one.job.namespace, one.job.id) for one in chosen]
        for name in names:
            del self._known[name]
        for one in chosen:
            del self._rows[one.number]
        self._connection.executemany("DELETE FROM job WHERE namespace = ? AND id = ?", names)
        self._connection.executemany(
            "DELETE FROM idempotency WHERE namespace = ? AND job_id = ?", names
        )

    def holder_of(self, key: Name) -> Holder | None:
        row = self._connection.execute(
            "SELECT job_id, digest FROM idempotency WHERE namespace = ? AND key = ?", key
        ).fetchone()
        return None if row is None else (row[0], row[1])

    def hold(self, key: Name, holder: Holder) -> None:
        self._connection.execute("INSERT INTO idempotency VALUES (?, ?, ?, ?)", (*key, *holder))

    def claimable(self, wanted: Demand, now: datetime, limit: int) -> list[Stored]:
        self.flush()
        return self._find(
            _CLAIMABLE,
            namespace=wanted.namespace,
            now=microseconds(now),
            types=json.dumps(sorted(wanted.types)),
            max_rows=limit,
            **finding.tags_of(wanted.tags),
        )

    def ahead(self, one: Stored, now: datetime, bound: int) -> int:
        wanted = {
            "namespace": one.job.namespace,
            "type": one.job.type,
            "now": microseconds(now),
            "place": microseconds(record.place(one.job)),
            "number": one.number,
            "bound": bound,
        }
        [count] = self._connection.execute(_AHEAD, wanted).fetchone()
        return int(count)

    def chosen(self, namespace: str, tags: frozenset[str], ids: Collection[str]) -> list[Stored]:
        self.flush()
        named = self._find(_NAMED, namespace=namespace, ids=json.dumps(list(ids)))
        tagged = self._find(_TAGGED, namespace=namespace, **finding.tags_of(tags)) if tags else []
        both = {one.number: one for one in (*named, *tagged)}
        return [both[number] for number in sorted(both)]

    def ended_ids(self, namespace: str, tags: frozenset[str]) -> list[str]:
        return [row["id"] for rows in self._ended(namespace, tags) for row in rows]

    def ended(self, namespace: str, tags: frozenset[str]) -> Iterator[list[Stored]]:
        return map(self._numbered, self._ended(namespace, tags))

    def _ended(self, namespace: str, tags: frozenset[str]) -> Iterator[list[sqlite3.Row]]:
        """In parts, so that there are never more of them in memory."""
        self.flush()
        place = {"after": 0, "max_rows": _PART}
        wanted = {"namespace": namespace, **finding.tags_of(tags)}
        while rows := self._connection.execute(_TAGGED_ENDED, wanted | place).fetchall():
            place["after"] = rows[-1]["number"]
            yield rows

    def _numbered(self, rows: Sequence[sqlite3.Row]) -> list[Stored]:
        return self._find(_NUMBERED, numbers=json.dumps([row["number"] for row in rows]))

    def children_of(self, parent: Stored) -> list[Stored]:
        new = [
            one
            for one in self._new.values()
            if any(edge.number == parent.number for edge in one.edges)
        ]
        return self._find(_CHILDREN, parent=parent.number) + new

    def leased(self) -> list[Stored]:
        self.flush()
        return self._find(_LEASED)

    def used_up(self, now: datetime) -> list[Stored]:
        self.flush()
        return self._find(_USED_UP, now=microseconds(now))

    def completed_before(self, at: datetime, namespace: str | None) -> Iterator[list[Stored]]:
        self.flush()
        place = {"after_at": 0, "after": 0, "max_rows": _PART}
        wanted = {"at": microseconds(at), "namespace": namespace}
        while rows := self._connection.execute(_COMPLETED, wanted | place).fetchall():
            place |= {"after_at": rows[-1]["finalized_at"], "after": rows[-1]["number"]}
            yield self._numbered(rows)

    def search(self, search: JobSearch, now: datetime) -> JobPage:
        wanted = finding.of_jobs(search, now)
        found = self._find(finding.PAGE[search.order], **wanted)
        jobs = tuple(one.job for one in found[: search.limit])
        cursor = _cursor(search, found)
        if not search.count:
            return JobPage(jobs=jobs, total_count=None, next_cursor=cursor)
        bound = {"bound": COUNT_BOUND + 1}
        [count] = self._connection.execute(finding.COUNT, {**wanted, **bound}).fetchone()
        return JobPage(
            jobs=jobs,
            total_count=min(count, COUNT_BOUND),
            total_is_exact=count <= COUNT_BOUND,
            next_cursor=cursor,
        )

    def search_failures(self, search: FailureSearch) -> FailurePage:
        wanted = finding.of_failures(search)
        found = self._find(finding.FAILURES, **wanted)
        jobs = tuple(one.job for one in found[: search.limit])
        cursor = _cursor(search, found)
        if not search.count:
            return FailurePage(jobs=jobs, total_count=None, next_cursor=cursor)
        by_category, by_code, by_type = Counter[ErrorCategory](), Counter[str](), Counter[str]()
        for kind, category, code, count in self._connection.execute(finding.TOTALS, wanted):
            by_category[ErrorCategory(category)] += count
            by_code[code] += count
            by_type[kind] += count
        return FailurePage(
            jobs=jobs,
            total_count=by_type.total(),
            next_cursor=cursor,
            by_category=by_category,
            by_code=by_code,
            by_type=by_type,
        )

    def counts(self, namespace: str, tags: frozenset[str]) -> tuple[Mapping[JobState, int], int]:
        statement = _COUNTS_TAGGED if tags else _COUNTS
        wanted = {"namespace": namespace, **finding.tags_of(tags)}
        rows = self._connection.execute(statement, wanted).fetchall()
        states = {JobState(state): jobs for state, jobs, _ in rows}
        return states, sum(retries for _, _, retries in rows)

    def pauses(self, namespace: str | None) -> list[Pause]:
        rows = self._connection.execute("SELECT * FROM pause ORDER BY namespace, type").fetchall()
        return [
            Pause(namespace=space, type=kind, reason=reason, by=by, since=instant(since))
            for space, kind, reason, by, since in rows
            if namespace in (None, space)
        ]

    def put_pause(self, pause: Pause) -> None:
        told = {
            "namespace": pause.namespace,
            "type": pause.type,
            "reason": pause.reason,
            "paused_by": pause.by,
            "since": optional_us(pause.since),
        }
        self._connection.execute(_PUT_PAUSE, told)

    def drop_pause(self, namespace: str, type: str) -> bool:
        gone = self._connection.execute(
            "DELETE FROM pause WHERE namespace = ? AND type = ?", (namespace, type)
        )
        return gone.rowcount > 0

    def add_lines(self, one: Stored, version: int, lines: Sequence[LogLine]) -> None:
        rows = [(one.number, version, line.number, line.size, log_record(line)) for line in lines]
        self._connection.executemany("INSERT OR REPLACE INTO log_line VALUES (?, ?, ?, ?, ?)", rows)
        bounds = {"max_lines": LOG_LINES, "max_bytes": LOG_BYTES, "keep": LOG_ATTEMPTS}
        wanted = {"number": one.number, "version": version, **bounds}
        self._connection.execute(_LOG_PRUNE, wanted)
        self._connection.execute(_LOG_FORGET, wanted)

    def lines_of(self, one: Stored, spans: Sequence[Span]) -> Mapping[int, Sequence[LogLine]]:
        log: dict[int, list[LogLine]] = {}
        for span in spans:
            wanted = {"number": one.number, **span._asdict()}
            for version, stored in self._connection.execute(_LOG_READ, wanted):
                log.setdefault(version, []).append(log_from(stored))
        return log

    def tally(self, namespace: str, span_s: int, begins_at: datetime, kind: JobKind) -> Tally:
        name = TallyName(namespace, span_s, microseconds(begins_at), *kind)
        if name not in self._tallies:
            self._tallies[name] = tallies.get(self._connection, name)
        return self._tallies[name]

    def tallies(self, namespace: str, parts: Sequence[Part]) -> list[tuple[JobKind, Tally]]:
        return tallies.within(self._connection, namespace, parts)

    def standing(self, namespace: str, now: datetime) -> Mapping[JobKind, Standing]:
        return tallies.standing(self._connection, namespace, now)

    def forget_tallies(self, span_s: int, oldest: datetime) -> None:
        tallies.forget(self._connection, span_s, oldest)

    def bucket(self, name: str) -> Bucket | None:
        row = self._connection.execute(
            "SELECT tokens, filled_at FROM token_bucket WHERE name = ?", (name,)
        ).fetchone()
        return None if row is None else Bucket(row[0], instant(row[1]))

    def fill_bucket(self, name: str, bucket: Bucket) -> None:
        kept = name, bucket.tokens, microseconds(bucket.filled_at)
        self._connection.execute(_BUCKET_KEEP, kept)

    def tell(self, row: Mapping[str, object]) -> None:
        self._connection.execute("INSERT INTO event (record) VALUES (?)", (event_record(row),))

    def announce(self, topic: Topic) -> None:
        self._topics.add(topic)

    def events(self, after: int, limit: int) -> Sequence[EventBatch]:
        rows = self._connection.execute(_EVENTS, (after, limit))
        return [event_from(seq, stored) for seq, stored in rows]

    def last_event(self) -> EventBatch | None:
        row = self._connection.execute(_LAST_EVENT).fetchone()
        return None if row is None else event_from(*row)

    @property
    def log_id(self) -> str:
        [row] = self._connection.execute("SELECT id FROM event_log").fetchall()
        return str(row[0])

    def glimpse(self, names: Collection[Name]) -> list[Glimpse]:
        wanted = {"names": json.dumps(list(names))}
        found = self._connection.execute(_NAMED_NUMBERS, wanted)
        return self.glimpse_numbered([number for (number,) in found])

    def glimpse_numbered(self, numbers: Collection[int]) -> list[Glimpse]:
        wanted = {"numbers": json.dumps(list(numbers))}
        return [glimpse_from(row) for row in self._connection.execute(_GLIMPSE, wanted)]


def _cursor(search: JobSearch | FailureSearch, found: Sequence[Stored]) -> str:
    """Of the next page, if more was found than fits on this one."""
    if len(found) <= search.limit:
        return ""
    last = found[search.limit - 1]
    if isinstance(search, FailureSearch):
        at = last.job.failed_at
    else:
        updated = search.order is SearchOrder.UPDATED_DESC
        at = last.job.updated_at if updated else last.job.created_at
    return encode_cursor(search, (at, last.number)) if at else ""
