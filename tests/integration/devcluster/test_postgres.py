"""The embedded PostgreSQL by itself."""

import shutil
import socket
import tempfile
from pathlib import Path

import pytest

from queue_operator.devcluster import Postgres
from queue_operator.devcluster.errors import CommandFailed


def test_a_server_that_does_not_start_says_why() -> None:
    # Not in a temporary folder of pytest's: the server's user must be able to reach it.
    folder = Path(tempfile.mkdtemp(prefix="queue-operator-test-postgres-", dir="/var/tmp"))
    folder.chmod(0o755)
    with socket.create_server(("127.0.0.1", 0)) as other:
        server = Postgres(folder, "127.0.0.1", other.getsockname()[1])
        try:
            with pytest.raises(CommandFailed, match="Address already in use"):
                server.start()
        finally:
            server.kill()
            shutil.rmtree(folder)
