"""A PostgreSQL of the benchmark's own, gone when it is over."""

import shutil
import socket
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import psycopg
from psycopg import sql

from bench.meter import parent
from queue_operator.devcluster.postgres import Postgres

SETTINGS: Final = {"shared_buffers": "1GB", "max_wal_size": "8GB"}
"""What differs from PostgreSQL's defaults, for everybody alike. The log is large enough that
its size forces no checkpoint during a run.
"""


COUNTING: Final = {
    "shared_preload_libraries": "pg_stat_statements",
    "pg_stat_statements.track": "none",
}
"""Lets a scenario count statements; while nothing is tracked it costs nothing."""


@dataclass(frozen=True, slots=True)
class Server:
    """A running server: the superuser's address, its first process, its version, and whether
    nobody else uses it.
    """

    admin_dsn: str = field(repr=False)
    pid: int
    version: str
    own: bool

    @classmethod
    def at(cls, admin_dsn: str, *, own: bool) -> "Server":
        """A server of this machine."""
        with psycopg.connect(admin_dsn) as connection:
            info = connection.info
            return cls(admin_dsn, parent(info.backend_pid), _version(info.server_version), own)

    @contextmanager
    def fresh_database(self) -> Iterator[str]:
        """The address of an empty database."""
        name = f"bench_{uuid.uuid4().hex[:12]}"
        with psycopg.connect(self.admin_dsn, autocommit=True) as admin:
            if self.own:
                # What was written before must not be flushed at the next run's expense.
                admin.execute("CHECKPOINT")
            admin.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
            try:
                yield urlsplit(self.admin_dsn)._replace(path=f"/{name}").geturl()
            finally:
                admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@contextmanager
def own_server() -> Iterator[Server]:
    """A server on a free port."""
    folder = Path(tempfile.mkdtemp(prefix="queue-operator-bench-", dir="/var/tmp"))
    # The server runs as another user, who must be able to enter.
    folder.chmod(0o755)
    postgres = Postgres(folder, "127.0.0.1", free_port())
    try:
        postgres.start()
        _configure(postgres.admin_dsn)
        postgres.stop()
        postgres.start()
        yield Server.at(postgres.admin_dsn, own=True)
    finally:
        postgres.kill()
        shutil.rmtree(folder)


def _configure(admin_dsn: str) -> None:
    with psycopg.connect(admin_dsn, autocommit=True) as admin:
        for name, value in {**SETTINGS, **COUNTING}.items():
            admin.execute(
                sql.SQL("ALTER SYSTEM SET {} = {}").format(
                    sql.Identifier(*name.split(".")), sql.Literal(value)
                )
            )


def _version(number: int) -> str:
    return f"{number // 10000}.{number % 10000}"


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
