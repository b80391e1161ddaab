"""Announcements between processes: versions in a table, which `listening` reads."""

import sqlite3
from collections.abc import Iterable
from datetime import datetime
from typing import Final

from queue_operator.backends.listening import Versions
from queue_operator.backends.protocol import Topic
from queue_operator.backends.sql import load
from queue_operator.backends.sqlite.rows import microseconds

_ANNOUNCE: Final = load(__package__, "announce")
_DUE: Final = load(__package__, "became_due")


def announce(connection: sqlite3.Connection, topics: Iterable[Topic]) -> None:
    connection.executemany(_ANNOUNCE, [{"topic": topic.value} for topic in sorted(topics)])


def read_news(connection: sqlite3.Connection, since: datetime, now: datetime) -> Versions:
    versions = dict(connection.execute("SELECT topic, version FROM signal").fetchall())
    times = {"since": microseconds(since), "now": microseconds(now)}
    [due] = connection.execute(_DUE, times).fetchone()
    return Versions(versions, bool(due))
