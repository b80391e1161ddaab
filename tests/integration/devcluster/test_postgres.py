"""The embedded PostgreSQL by itself."""

import shutil
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from queue_operator.devcluster import Postgres
from queue_operator.devcluster.errors import CommandFailed


@pytest.fixture
def folder() -> Iterator[Path]:
    # Not in a temporary folder of pytest's: the server's user must be able to reach it.
    folder = Path(tempfile.mkdtemp(prefix="queue-operator-test-postgres-", dir="/var/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def test_a_server_that_does_not_start_says_why(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        server = Postgres(folder, "127.0.0.1", other.getsockname()[1])
        try:
            with pytest.raises(CommandFailed, match="Address already in use"):
                server.start()
        finally:
            server.kill()


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
