"""A PostgreSQL of the benchmark's own, gone when it is over."""

import shutil
import socket
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from queue_operator.devcluster.postgres import Postgres


@contextmanager
def own_server() -> Iterator[str]:
    """The superuser's address of a server on a free port."""
    folder = Path(tempfile.mkdtemp(prefix="queue-operator-bench-", dir="/var/tmp"))
    # The server runs as another user, who must be able to enter.
    folder.chmod(0o755)
    server = Postgres(folder, "127.0.0.1", _free_port())
    try:
        server.start()
        yield server.admin_dsn
    finally:
        server.kill()
        shutil.rmtree(folder)


@contextmanager
def fresh_database(admin_dsn: str) -> Iterator[str]:
    """The address of an empty database."""
    name = f"bench_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(admin_dsn, autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        # What was written before must not be flushed at this candidate's expense.
        admin.execute("CHECKPOINT")
        try:
            yield make_conninfo(admin_dsn, dbname=name)
        finally:
            admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
