"""The embedded PostgreSQL by itself."""

import os
import shutil
import signal
import socket
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

from queue_operator.devcluster import Postgres
from queue_operator.devcluster.errors import CommandFailed
from queue_operator.devcluster.processes import ProcessIdentity


@pytest.fixture
def folder() -> Iterator[Path]:
    # Not in a temporary folder of pytest's: the server's user must be able to reach it.
    made = Path(tempfile.mkdtemp(prefix="queue-operator-test-postgres-", dir="/var/tmp"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


@pytest.fixture
def server(folder: Path) -> Iterator[Postgres]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    made = Postgres(folder, "127.0.0.1", port)
    made.start()
    yield made
    made.kill()


def identity(server: Postgres) -> ProcessIdentity:
    found = ProcessIdentity.of(server.pid() or 0)
    assert found is not None
    return found


def test_a_server_that_does_not_start_says_why(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        server = Postgres(folder, "127.0.0.1", other.getsockname()[1])
        try:
            with pytest.raises(CommandFailed, match="Address already in use"):
                server.start()
        finally:
            server.kill()


def test_who_restarts_it_waits_for_others_who_do(server: Postgres) -> None:
    def restart(_: int) -> None:
        server.kill()
        server.start()

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(restart, range(8)))
    with psycopg.connect(server.dsn) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_what_outlives_a_killed_server_blocks_no_new_one(server: Postgres) -> None:
    """A child that does not look whether its server is there, here because it is stopped."""
    first = identity(server)
    with psycopg.connect(server.dsn) as connection:
        child = connection.info.backend_pid
        os.kill(child, signal.SIGSTOP)
        first.kill()
        server.start()
        assert ProcessIdentity.of(child) is None
    assert identity(server) != first


def test_a_killed_server_leaves_no_shared_memory(server: Postgres) -> None:
    shared, first = server._shared_memory(), identity(server)
    assert shared
    with psycopg.connect(server.dsn) as connection:
        # It does not look, so that the segments are found by what is mapped there.
        os.kill(connection.info.backend_pid, signal.SIGSTOP)
        first.kill()
        server.kill()
    assert [path for path in shared if path.exists()] == []


def test_a_server_has_an_address_of_ipv6(folder: Path) -> None:
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as free:
        port = free.getsockname()[1]
    server = Postgres(folder, "::1", port)
    try:
        server.start()
        assert f"@[::1]:{port}/queue_operator" in server.dsn
        with psycopg.connect(server.dsn) as connection:
            assert connection.info.hostaddr == "::1"
    finally:
        server.kill()
