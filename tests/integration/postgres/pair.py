"""Two real servers: a primary, and a standby that follows it."""

import asyncio
import os
import random
import shutil
import socket
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import LiteralString

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from queue_operator.backends.postgres import migrate
from queue_operator.devcluster import Postgres
from queue_operator.devcluster.commands import run
from queue_operator.devcluster.paths import is_root
from queue_operator.devcluster.pgprograms import programs, server_uid

HOST = "127.0.0.1"
# Below those that the kernel gives to connections: a server that comes back needs its own again.
PORTS = range(26_000, 32_000)


@dataclass(frozen=True)
class Pair:
    """`first` is the primary at the start, `second` its standby."""

    first: Postgres
    second: Postgres

    @property
    def dsn(self) -> str:
        """Leads to whichever of the two takes writes; commits wait for the standby."""
        return make_conninfo(
            self.first.dsn,
            host=f"{HOST},{HOST}",
            port=f"{self.first.port},{self.second.port}",
            options="-c synchronous_commit=remote_apply",
        )

    def promote(self) -> None:
        """The standby becomes a primary. The first server must be down, or take no writes."""
        control(self.second, "promote", "-w")

    def lose_the_standby(self) -> None:
        """The primary goes on alone: commits wait for nobody."""
        self.second.stop()
        configure(self.first, "synchronous_standby_names", "")

    def go_on_without_what_it_missed(self) -> None:
        """The standby that was lost comes back as the primary."""
        self.first.kill()
        self.second.start()
        self.promote()

    def demote(self) -> None:
        """Starts the first server again, after it was stopped, as a standby."""
        own_file(self.first.data / "standby.signal", "")
        control(self.first, "start", "-l", str(self.first.log), "-w")

    def close_first_to_writes(self) -> None:
        """As long as it runs; those who are connected are told with their next statement."""
        configure(self.first, "default_transaction_read_only", "on")


@contextmanager
def pair() -> Iterator[Pair]:
    """Running, migrated, and replicating synchronously."""
    # Not in a temporary folder of pytest's: the server's user must be able to reach it.
    folder = Path(tempfile.mkdtemp(dir="/var/tmp", prefix="queue-operator-pair-"))
    folder.chmod(0o755)
    ports = free_ports(2)
    made = Pair(*(Postgres(folder / str(port), HOST, port) for port in ports))
    try:
        made.first.start()
        asyncio.run(migrate(made.first.dsn))
        copy(made.first, made.second)
        made.second.start()
        replicate_synchronously(made.first)
        yield made
    finally:
        made.first.kill()
        made.second.kill()
        shutil.rmtree(folder)


def copy(source: Postgres, target: Postgres) -> None:
    """Makes `target` a standby of `source`, with the same passwords."""
    with (source.data / "pg_hba.conf").open("a") as rules:
        rules.write(f"host replication all {HOST}/32 scram-sha-256\n")
    control(source, "reload")
    target.folder.mkdir()
    target.data.mkdir(mode=0o700)
    for password in source.folder.glob("*.password"):
        shutil.copy(password, target.folder)
    if is_root():
        os.chown(target.data, server_uid(), -1)
    given = conninfo_to_dict(source.admin_dsn)
    words = ["-D", str(target.data), "-d", make_conninfo(source.admin_dsn, password=None)]
    run(
        as_server("pg_basebackup", *words, "-R", "-X", "stream", "-c", "fast"),
        cwd=Path("/"),
        env={"PGPASSWORD": str(given["password"])},
    )
    with (target.data / "postgresql.conf").open("a") as settings:
        settings.write(f"port = {target.port}\n")
    (target.folder / ".initialised").touch()


def configure(server: Postgres, name: LiteralString, value: str) -> None:
    """Changes a setting that needs no new start, and waits until it has changed."""
    with psycopg.connect(server.admin_dsn, autocommit=True) as admin:
        admin.execute(sql.SQL("ALTER SYSTEM SET {} = {}").format(sql.Identifier(name), value))
        admin.execute("SELECT pg_reload_conf()")
        while admin.execute(sql.SQL("SHOW {}").format(sql.Identifier(name))).fetchone() != (value,):
            pass


def replicate_synchronously(primary: Postgres) -> None:
    configure(primary, "synchronous_standby_names", "*")
    with psycopg.connect(primary.admin_dsn, autocommit=True) as admin:
        query = "SELECT sync_state FROM pg_stat_replication"
        while admin.execute(query).fetchone() != ("sync",):
            pass


def control(server: Postgres, action: str, *words: str) -> None:
    run(as_server("pg_ctl", action, "-D", str(server.data), *words), cwd=Path("/"))


def as_server(program: str, *words: str) -> list[str | Path]:
    """The command line that runs a program as the servers' user."""
    command: list[str | Path] = [programs() / program, *words]
    if not is_root():
        return command
    uid = server_uid()
    return ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--", *command]


def own_file(path: Path, text: str) -> None:
    path.write_text(text)
    if is_root():
        os.chown(path, server_uid(), -1)


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on, all different."""
    with ExitStack() as probes:
        found = (port for port in _any_order(PORTS) if _is_free(port, probes))
        return list(islice(found, count))


def _any_order(ports: Sequence[int]) -> list[int]:
    return random.SystemRandom().sample(ports, len(ports))


def _is_free(port: int, probes: ExitStack) -> bool:
    with suppress(OSError):
        probes.enter_context(socket.create_server((HOST, port)))
        return True
    return False
