"""A server on the same machine, by its Unix socket: no address of IP, and nothing of TCP holds."""

import asyncio
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from psycopg.conninfo import conninfo_to_dict
from tests.integration.postgres.life import live_a_whole_life
from tests.integration.postgres.pair import HOST, free_ports

from queue_operator.backends.news import Topic
from queue_operator.backends.postgres import PostgresBackend, migrate
from queue_operator.devcluster import Postgres
from queue_operator.domain.errors import Unavailable
from queue_operator.domain.job import Job
from queue_operator.settings import DatabaseSettings


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    # Not in a temporary folder of pytest's: the server's user must be able to reach it.
    folder = Path(tempfile.mkdtemp(dir="/var/tmp", prefix="queue-operator-socket-"))
    folder.chmod(0o777)
    [port] = free_ports(1)
    made = Postgres(folder, HOST, port, settings={"unix_socket_directories": str(folder)})
    try:
        made.start()
        asyncio.run(migrate(_url(made)))
        yield made
    finally:
        made.kill()
        shutil.rmtree(folder)


def _url(server: Postgres) -> str:
    """With the folder of the socket where a host would stand."""
    given = conninfo_to_dict(server.dsn)
    user, password = given["user"], quote(str(given["password"]), safe="")
    folder = quote(str(server.folder), safe="")
    return f"postgresql://{user}:{password}@{folder}:{server.port}/{given['dbname']}"


def _pairs(server: Postgres) -> str:
    given = conninfo_to_dict(server.dsn)
    return (
        f"host={server.folder} port={server.port} dbname={given['dbname']} user={given['user']} "
        f"password={given['password']}"
    )


async def test_everything_works_by_a_socket(server: Postgres) -> None:
    backend = await PostgresBackend.open(_url(server))
    try:
        await live_a_whole_life(backend)
        heard = backend.listen()
        await backend.enqueue_job(Job(id="heard", type="t"))
        async with asyncio.timeout(30):
            while Topic.READY not in await anext(heard):
                pass
    finally:
        await backend.close()


@pytest.mark.parametrize("written", [_url, _pairs], ids=["url", "pairs"])
async def test_a_socket_is_written_as_libpq_has_it(
    server: Postgres, written: Callable[[Postgres], str]
) -> None:
    address = written(server)
    assert DatabaseSettings(dsn=address).dsn.get_secret_value() == address
    backend = await PostgresBackend.open(address)
    await backend.ping()
    await backend.close()


async def test_a_server_that_keeps_silent_is_left(server: Postgres) -> None:
    backend = await PostgresBackend.open(_url(server), statement_timeout_s=1.0)
    stopped = [process.pid for process in server._processes()]
    try:
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        began = time.monotonic()
        with pytest.raises(Unavailable, match="the server did not answer in time"):
            await backend.ping()
        assert time.monotonic() - began < 10
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
    await backend.ping()
    await backend.close()
