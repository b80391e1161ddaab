"""A real PgBouncer before a server."""

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from tests.integration.postgres.pair import HOST, free_ports

from queue_operator.devcluster.commands import SYSTEM_PATH
from queue_operator.devcluster.paths import is_root
from queue_operator.devcluster.pgprograms import server_uid

SERVER_CONNECTIONS = 3

_CONFIGURATION = """
[databases]
* = host={host} port={port}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listen_port}
unix_socket_dir =
auth_type = scram-sha-256
auth_file = {users}
pool_mode = {mode}
default_pool_size = {size}
max_client_conn = 300
server_login_retry = 1
"""


@contextmanager
def pooled(dsn: str, *, mode: str = "transaction", size: int = SERVER_CONNECTIONS) -> Iterator[str]:
    """The address of a pooler that has few connections to the server for all of its clients."""
    folder = Path(tempfile.mkdtemp(dir="/var/tmp", prefix="queue-operator-pooler-"))
    [listen_port] = free_ports(1)
    process = subprocess.Popen(
        _command(_configure(folder, dsn, mode, size, listen_port)),
        cwd="/",
        stderr=subprocess.DEVNULL,
    )
    try:
        address = make_conninfo(dsn, host=HOST, port=listen_port)
        _wait_for(process, address)
        yield address
    finally:
        process.terminate()
        process.wait(timeout=30)
        shutil.rmtree(folder)


def _configure(folder: Path, dsn: str, mode: str, size: int, listen_port: int) -> Path:
    server = conninfo_to_dict(dsn)
    users, configuration = folder / "users.txt", folder / "pgbouncer.ini"
    users.write_text(f'"{server["user"]}" "{server["password"]}"\n')
    configuration.write_text(
        _CONFIGURATION.format(
            host=server["host"],
            port=server["port"],
            listen_port=listen_port,
            users=users,
            mode=mode,
            size=size,
        )
    )
    if is_root():
        for path in (folder, users, configuration):
            shutil.chown(path, server_uid())
    return configuration


def _command(configuration: Path) -> list[str]:
    program = shutil.which("pgbouncer", path=SYSTEM_PATH)
    assert program is not None, "on Debian: apt-get install pgbouncer"
    if not is_root():
        return [program, str(configuration)]
    uid = server_uid()
    # It refuses to run for root.
    return ["setpriv", f"--reuid={uid}", "--clear-groups", "--", program, str(configuration)]


def _wait_for(process: "subprocess.Popen[bytes]", address: str) -> None:
    while True:
        try:
            psycopg.connect(address).close()
        except psycopg.OperationalError:
            assert process.poll() is None, "the pooler ended at once"
        else:
            return
