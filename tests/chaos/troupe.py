"""Programs that play together and can be struck: Postgres, operators, workers, and receivers of
messages.
"""

import asyncio
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import psycopg
from psycopg.conninfo import make_conninfo
from tests.chaos.callbacks import Callbacks
from tests.chaos.doors import NAMESPACE
from tests.chaos.processes import Guard, Program
from tests.chaos.proxy import Address, Proxy, waited
from tests.integration.postgres.pair import free_ports
from tests.integration.serving import free_port

from queue_operator.backends.postgres import migrate
from queue_operator.devcluster import Postgres
from queue_operator.devcluster.errors import CommandFailed

HOST: Final = "127.0.0.1"
TTL_S: Final = 2.5
OPERATORS: Final = 2
WORKERS: Final = 4
CAPACITY: Final = 6
START_S: Final = 180.0
_GRACE_S: Final = 2.0
_LOOK_S: Final = 0.1
_RESTARTS: Final = 5


class Troupe:
    """Postgres, operators, workers, receivers, and the lines between them: what can be struck. Of
    workers each has its settings.
    """

    def __init__(self, folder: Path, postgres: Postgres, workers: int = WORKERS) -> None:
        self.folder = folder
        self.postgres = postgres
        self.store_lines = [Proxy(lambda: (HOST, postgres.port)) for _ in range(OPERATORS)]
        self.worker_lines = [Proxy(self._finder(n, 1)) for n in range(workers)]
        self.rest_line, self.grpc_line = Proxy(self._finder(0, 0)), Proxy(self._finder(1, 1))
        self.callbacks = Callbacks(free_port())
        self.receivers: Program
        self.operators: list[Program] = []
        self.workers: list[Program] = []

    @property
    def lines(self) -> tuple[Proxy, ...]:
        return (*self.store_lines, *self.worker_lines, self.rest_line, self.grpc_line)

    def _finder(self, first: int, door: int) -> Callable[[], Address]:
        """Operators in turn, from a first one on; those that do not run are passed over."""
        turn = first

        def find() -> Address:
            nonlocal turn
            for _ in self.operators:
                turn += 1
                if (doors := self.operators[turn % len(self.operators)].doors()) is not None:
                    return doors[door]
            raise ConnectionRefusedError("no operator runs")

        return find

    def make_programs(
        self,
        operators: Mapping[str, str],
        workers: Mapping[str, str] = {},
        outside: Mapping[str, str] = {},
    ) -> None:
        """With settings that all operators have, or all workers, and variables of operators that
        are no settings. Needs the lines to be open, and the server to have been started once.
        """
        port = {"CHAOS_PORT": str(self.callbacks.port)}
        self.receivers = Program("receivers", "receivers", self.folder, outside=port)
        for number, line in enumerate(self.store_lines):
            dsn = make_conninfo(self.postgres.dsn, host=HOST, port=line.port)
            settings = {**operator_settings(dsn), **self.callbacks.settings, **operators}
            name = f"operator{number}"
            self.operators.append(Program("operator", name, self.folder, settings, outside))
        for number, line in enumerate(self.worker_lines):
            settings = {**worker_settings(f"worker{number}", line.port), **workers}
            self.workers.append(Program("worker", f"worker{number}", self.folder, settings))

    async def start(self) -> None:
        """Everything, and returns when it is up."""
        self.keep_alive()
        up = await self.until(lambda: all(one.doors() for one in self.operators), START_S)
        assert up, f"the operators did not start; see {self.folder}"
        up = await self.until(lambda: self.sessions() == len(self.workers), START_S)
        assert up, f"the workers did not connect; see {self.folder}"

    async def until(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Looks now and then; false if it did not come true in time."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while not condition():
            if loop.time() > until:
                return False
            await waited(asyncio.Event(), _LOOK_S)
        return True

    async def restart_postgres(self) -> None:
        """Without a checkpoint, as after a power cut."""
        await asyncio.to_thread(self.postgres.kill)
        for left in reversed(range(_RESTARTS)):
            try:
                return await asyncio.to_thread(self.postgres.start)
            except CommandFailed:
                # Somebody may have been given its port for an outgoing connection.
                if not left:
                    raise

    def terminate_backends(self, of: int) -> int:
        """Ends one connection of so many; how many that were."""
        with psycopg.connect(self.postgres.admin_dsn, autocommit=True) as admin:
            found = admin.execute(
                "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
                " WHERE usename = 'queue_operator' AND pid %% %s = 0",
                (of,),
            ).fetchone()
        return int(found[0]) if found else 0

    def sessions(self) -> int:
        """How many workers are connected."""
        with psycopg.connect(self.postgres.dsn) as connection:
            found = connection.execute(
                "SELECT count(*) FROM queue_operator.worker_session"
            ).fetchone()
        return int(found[0]) if found else 0

    def unfinished(self) -> int:
        """How many jobs have not ended, as the server itself says."""
        with psycopg.connect(self.postgres.dsn) as connection:
            found = connection.execute(
                "SELECT (SELECT count(*) FROM queue_operator.lease)"
                " + (SELECT count(*) FROM queue_operator.ready)"
            ).fetchone()
        return int(found[0]) if found else 0

    def untold(self) -> int:
        """How many messages are still to be delivered, as the server itself says."""
        with psycopg.connect(self.postgres.dsn) as connection:
            found = connection.execute(
                "SELECT (SELECT count(*) FROM queue_operator.webhook_batch)"
                " + (SELECT count(*) FROM queue_operator.webhook_message WHERE state = 'PENDING')"
            ).fetchone()
        return int(found[0]) if found else 0

    def keep_alive(self) -> None:
        """Starts again what has ended."""
        for program in (self.receivers, *self.operators, *self.workers):
            if not program.running:
                program.start()

    def heal(self) -> None:
        """Nothing stands in the way any more."""
        for line in self.lines:
            line.slow_down(0.0)
        for program in (*self.operators, *self.workers):
            program.thaw()
        self.keep_alive()

    def ask_for_usage(self) -> None:
        for program in self.operators:
            if program.doors() is not None:
                program.send(signal.SIGUSR1)

    async def end(self) -> list[str]:
        """Ends everything in good order; what did not end well."""
        wrong: list[str] = []
        for programs, seconds in ((self.workers, 15.0), (self.operators, 15.0)):
            statuses = await asyncio.gather(
                *(asyncio.to_thread(program.end, seconds) for program in programs)
            )
            wrong += [
                f"{program.title} ended with {status} after SIGTERM"
                for program, status in zip(programs, statuses, strict=True)
                if status != 0
            ]
        return wrong

    def kill_all(self) -> None:
        if self.workers:
            self.receivers.kill()
        for program in (*self.workers, *self.operators):
            program.kill()


def operator_settings(dsn: str) -> dict[str, str]:
    ports = {f"{door}__PORT": "0" for door in ("REST", "GRPC", "METRICS", "HEALTH")}
    hosts = {f"{door}__HOST": HOST for door in ("REST", "GRPC", "METRICS", "HEALTH")}
    return {
        "DATABASE__DSN": dsn,
        "DATABASE__STATEMENT_TIMEOUT_S": "2",
        "DATABASE__CONNECT_TIMEOUT_S": "2",
        "QUEUE__LEASE_TTL_S": str(TTL_S),
        "QUEUE__CANCEL_TIMEOUT_S": "4",
        "AUTH__MODE": "none",
        **ports,
        **hosts,
    }


def worker_settings(name: str, port: int) -> dict[str, str]:
    return {
        "SERVER": f"{HOST}:{port}",
        "NAMESPACE": NAMESPACE,
        "WORKER_NAME": name,
        "CAPACITY": str(CAPACITY),
        "HEALTH_PORT": "0",
        "GRACE_S": str(_GRACE_S),
        "CONNECT_TIMEOUT_S": "2",
        "RECONNECT_MAX_S": "1",
    }


def new_server() -> Postgres:
    """One of its own, not yet started."""
    # Not in a temporary folder of pytest's: the server's user must be able to reach it.
    folder = Path(tempfile.mkdtemp(dir="/var/tmp", prefix="queue-operator-chaos-"))
    folder.chmod(0o755)
    [port] = free_ports(1)
    return Postgres(folder, HOST, port)


@asynccontextmanager
async def served(folder: Path) -> AsyncIterator[Postgres]:
    """A server of its own, with the schema; nothing of it is left afterwards but its log."""
    postgres = new_server()
    guard = Guard(postgres.folder)
    try:
        await asyncio.to_thread(postgres.start)
        await migrate(postgres.dsn)
        yield postgres
    finally:
        await asyncio.to_thread(postgres.kill)
        shutil.copy(postgres.log, folder)
        shutil.rmtree(postgres.folder)
        guard.dismiss()
