"""What a run costs: processor time, memory, write-ahead log and table space."""

import os
from dataclasses import dataclass
from pathlib import Path

import psycopg

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_MB = 1024 * 1024
_TABLES = """
SELECT coalesce(sum(pg_total_relation_size(relid)), 0)::bigint,
       coalesce(sum(n_dead_tup), 0)::bigint
FROM pg_stat_user_tables
"""


@dataclass(frozen=True, slots=True)
class Reading:
    """Meters at one moment: seconds of processor time and bytes since their beginning."""

    own_cpu_s: float
    server_cpu_s: float
    wal_bytes: int
    table_bytes: int
    dead_rows: int
    rss_mb: float
    peak_rss_mb: float


def read(dsn: str, pid: int, server_pid: int) -> Reading:
    """`pid` is the program's, `server_pid` the server's first process."""
    table_bytes, dead_rows = _ask(dsn, _TABLES)
    [wal_bytes] = _ask(dsn, "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint")
    return Reading(
        own_cpu_s=_cpu_s(_stat(pid), "utime", "stime"),
        server_cpu_s=_server_cpu_s(server_pid),
        wal_bytes=wal_bytes,
        table_bytes=table_bytes,
        dead_rows=dead_rows,
        rss_mb=_rss_mb(pid),
        peak_rss_mb=_peak_kb(pid) / 1024,
    )


@dataclass(frozen=True, slots=True)
class Usage:
    """Processor time since the start of one process, and its memory now."""

    cpu_s: float
    rss_mb: float


def usage(pid: int) -> Usage:
    return Usage(_cpu_s(_stat(pid), "utime", "stime"), _rss_mb(pid))


def parent(pid: int) -> int:
    """The process that started this one."""
    return int(_stat(pid)[_FIELDS["ppid"]])


def per_job(before: Reading, after: Reading, jobs: int) -> dict[str, float]:
    """The costs of what happened between two readings, as metrics."""
    if not jobs:
        return {}
    return {
        "wal_bytes_per_job": (after.wal_bytes - before.wal_bytes) / jobs,
        "own_cpu_s_per_1000": (after.own_cpu_s - before.own_cpu_s) / jobs * 1000,
        "server_cpu_s_per_1000": (after.server_cpu_s - before.server_cpu_s) / jobs * 1000,
    }


_FIELDS = {"ppid": 1, "utime": 11, "stime": 12, "cutime": 13, "cstime": 14}
"""Positions after the name of the program, which may hold spaces."""


def _stat(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def _cpu_s(stat: list[str], *fields: str) -> float:
    return sum(int(stat[_FIELDS[field]]) for field in fields) / _TICKS_PER_S


def _server_cpu_s(pid: int) -> float:
    """The first process has the time of those of its children that have ended."""
    total = _cpu_s(_stat(pid), "utime", "stime", "cutime", "cstime")
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            stat = _stat(int(entry.name))
        except OSError:
            continue
        if int(stat[_FIELDS["ppid"]]) == pid:
            total += _cpu_s(stat, "utime", "stime")
    return total


def _rss_mb(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE / _MB


def _peak_kb(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1])
    return 0


def _ask(dsn: str, statement: str) -> tuple[int, ...]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        row = connection.execute(statement.encode()).fetchone()
    return tuple(row or ())
