"""Wake-ups between processes: versions in a table, read again and again.

Whoever writes raises the version of what changed in the same transaction. That the time of a
delayed job has come is written by nobody; each listener sees it for itself.
"""

import logging
import sqlite3
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from datetime import datetime
from typing import Final, NamedTuple

from queue_operator.backends.protocol import Topic
from queue_operator.backends.sql import load
from queue_operator.backends.sqlite.file import SqliteFile
from queue_operator.backends.sqlite.rows import microseconds
from queue_operator.domain.errors import Unavailable

POLL_S: Final = 0.25
_ANNOUNCE: Final = load(__package__, "announce")
_DUE: Final = load(__package__, "became_due")
_EVERYTHING: Final = frozenset(Topic)

logger = logging.getLogger(__name__)


def announce(connection: sqlite3.Connection, topics: Iterable[Topic]) -> None:
    connection.executemany(_ANNOUNCE, [{"topic": topic.value} for topic in sorted(topics)])


async def listen(
    file: SqliteFile, clock: Callable[[], datetime], sleep: Callable[[float], Awaitable[None]]
) -> AsyncGenerator[frozenset[Topic], None]:
    """Yields all topics first, since nobody knows what was missed before, and again after the
    file could not be read; else those announced since the last yield.
    """
    seen, since = None, clock()
    while True:
        now = clock()
        found = await _try_to_read(file, since, now, failed_before=seen is None)
        if found is not None:
            news = _EVERYTHING if seen is None else _risen(seen, found.versions)
            if news or found.due:
                yield news | ({Topic.READY} if found.due else frozenset())
        seen, since = (found.versions if found else None), now
        await sleep(POLL_S)


class _Found(NamedTuple):
    """The versions by topic, and whether a job became due."""

    versions: Mapping[str, int]
    due: bool


async def _try_to_read(
    file: SqliteFile, since: datetime, now: datetime, *, failed_before: bool
) -> _Found | None:
    try:
        return await file.read(lambda connection: _read(connection, since, now))
    except Unavailable as error:
        if not failed_before:
            logger.warning("reading the signals failed, trying again: %s", error)
        return None


def _read(connection: sqlite3.Connection, since: datetime, now: datetime) -> _Found:
    versions = dict(connection.execute("SELECT topic, version FROM signal").fetchall())
    times = {"since": microseconds(since), "now": microseconds(now)}
    [due] = connection.execute(_DUE, times).fetchone()
    return _Found(versions, bool(due))


def _risen(seen: Mapping[str, int], versions: Mapping[str, int]) -> frozenset[Topic]:
    return frozenset(topic for topic in Topic if versions.get(topic, 0) != seen.get(topic, 0))
