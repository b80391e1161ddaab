"""Counts of jobs for gauges, each from an index alone."""

import sqlite3
from datetime import datetime
from typing import Final

from queue_operator.backends.protocol import QueueDepth
from queue_operator.backends.sql import load
from queue_operator.backends.sqlite.rows import microseconds

_JOBS: Final = load(__package__, "depth_jobs")
_OLDEST: Final = load(__package__, "depth_oldest")
_US: Final = 1_000_000


def queue_depth(connection: sqlite3.Connection, now: datetime) -> QueueDepth:
    now_us = microseconds(now)
    jobs = connection.execute(_JOBS).fetchall()
    oldest = connection.execute(_OLDEST, {"now": now_us}).fetchall()
    return QueueDepth(
        jobs={(namespace, kind, state): count for namespace, kind, state, count in jobs},
        oldest_age_s={(namespace, kind): (now_us - at) / _US for namespace, kind, at in oldest},
    )
