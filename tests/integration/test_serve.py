"""`queue-operator serve` as the process that it is in production: how it starts and ends."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from queue_operator.backends.postgres import migrate
from queue_operator.crd.names import QUEUE_JOB, QUEUE_WORKER
from queue_operator.devcluster import ClusterInfo
from queue_operator.devcluster.commands import run
from queue_operator.devcluster.processes import ProcessIdentity, all_processes, wait_until

CRDS = Path(__file__).parents[2] / "crds"
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 10.0


class Server:
    """One running `queue-operator serve`, its log and its probes."""

    def __init__(self, environment: dict[str, str], log: Path) -> None:
        self.health_port = free_port()
        ports = {name: "0" for name in ("REST", "GRPC", "METRICS")}
        ports["HEALTH"] = str(self.health_port)
        settings = {
            "AUTH__MODE": "none",
            "CONTROLLER__ENABLED": "false",
            **{f"{name}__PORT": port for name, port in ports.items()},
            **environment,
        }
        self._log = log
        with log.open("wb") as stream:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "queue_operator.cli.main", "serve"],
                env=os.environ
                | {f"QUEUE_OPERATOR_{key}": value for key, value in settings.items()},
                stderr=stream,
            )

    @property
    def log(self) -> str:
        return self._log.read_text()

    def probe(self, path: str) -> tuple[int, str]:
        """Status and body; 0 as long as nobody listens."""
        try:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{self.health_port}/{path}", timeout=5
            ) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def await_ready(self) -> None:
        self.until(lambda: self.probe("readyz")[0] == 200, "readiness")

    def until(self, condition: Callable[[], bool], what: str) -> None:
        def met() -> bool:
            assert self.process.poll() is None, self.log
            return condition()

        wait_until(met, f"{what}; see {self._log}", START_TIMEOUT_S)

    def end(self) -> int:
        """Sends SIGTERM; the exit code, which must come in time."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STOP_TIMEOUT_S)

    def children(self) -> list[ProcessIdentity]:
        listed = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        pids = {int(word) for word in listed.split()}
        return [identity for identity in all_processes() if identity.pid in pids]

    def controller(self) -> ProcessIdentity:
        """The child that kopf runs in; the other one is Python's own tracker of semaphores."""
        (found,) = (child for child in self.children() if "spawn_main" in command_line(child.pid))
        return found


class Start(Protocol):
    def __call__(self, **environment: str) -> Server: ...


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts servers; the keywords are settings without their prefix."""
    servers: list[Server] = []

    def started(**environment: str) -> Server:
        servers.append(Server(environment, tmp_path / f"serve-{len(servers)}.log"))
        return servers[-1]

    yield started
    for server in servers:
        server.process.kill()
        server.process.wait()


@pytest.fixture
def absent_dsn(postgres_admin_dsn: str) -> Iterator[str]:
    """The address of a database that a test may create."""
    name = f"serve_{uuid.uuid4().hex[:12]}"
    yield make_conninfo(postgres_admin_dsn, dbname=name)
    with psycopg.connect(postgres_admin_dsn, autocommit=True) as admin:
        drop = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)")
        admin.execute(drop.format(sql.Identifier(name)))


@pytest.fixture
def dsn(new_database: Callable[[], str]) -> str:
    """The address of a migrated database of the test's own."""
    address = new_database()
    asyncio.run(migrate(address))
    return address


@pytest.fixture
def controlled(cluster: ClusterInfo, dsn: str) -> dict[str, str]:
    """The settings of a server that also runs the controller, in a namespace nobody uses."""
    kubectl: list[str | Path] = [cluster.kubectl, f"--kubeconfig={cluster.kubeconfig}"]
    run([*kubectl, "apply", "--server-side", "--force-conflicts", "-f", CRDS])
    crds = [f"crd/{names.crd}" for names in (QUEUE_JOB, QUEUE_WORKER)]
    run([*kubectl, "wait", "--for=condition=Established", "--timeout=30s", *crds])
    return {
        "DATABASE__DSN": dsn,
        "CONTROLLER__ENABLED": "true",
        "CONTROLLER__NAMESPACES": json.dumps([f"serve-{uuid.uuid4().hex[:8]}"]),
    }


@pytest.fixture
def kubeconfig(cluster: ClusterInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))


def test_sigterm_ends_it_in_time_and_without_an_error(start: Start, dsn: str) -> None:
    server = start(DATABASE__DSN=dsn)
    server.await_ready()
    assert server.end() == 0
    assert "Traceback" not in server.log


def test_it_waits_for_its_database_and_says_so_once(
    start: Start, absent_dsn: str, postgres_admin_dsn: str
) -> None:
    server = start(DATABASE__DSN=absent_dsn)
    server.until(lambda: "does not exist" in server.log, "the first complaint")
    assert server.probe("healthz")[0] == 200
    status, body = server.probe("readyz")
    assert status == 503
    assert json.loads(body)["checks"]["store"] != "ok"
    create(absent_dsn, postgres_admin_dsn)
    server.until(lambda: "run `queue-operator migrate`" in server.log, "the second complaint")
    asyncio.run(migrate(absent_dsn))
    server.await_ready()
    assert server.log.count("trying again") == 2, server.log
    assert "Traceback" not in server.log
    assert server.end() == 0


def test_it_can_be_stopped_while_it_waits_for_its_database(start: Start, absent_dsn: str) -> None:
    server = start(DATABASE__DSN=absent_dsn)
    server.until(lambda: "does not exist" in server.log, "the first complaint")
    assert server.end() == 0
    assert "stopping: SIGTERM" in server.log
    assert "Traceback" not in server.log


def test_wrong_settings_are_all_named(start: Start) -> None:
    server = start(
        QUEUE__LEASE_TTL_S="-1", CONTROLLER__NAMESPACES="team-a", DATABASE__DNS="postgresql://db"
    )
    assert server.process.wait(START_TIMEOUT_S) == 1
    first, *faults = server.log.splitlines()
    assert first == "error: the settings are wrong:"
    assert sorted(fault.partition(":")[0].strip() for fault in faults) == [
        "QUEUE_OPERATOR_CONTROLLER__NAMESPACES",
        "QUEUE_OPERATOR_DATABASE__DNS",
        "QUEUE_OPERATOR_QUEUE__LEASE_TTL_S",
    ]


def test_a_port_that_is_taken_is_named(start: Start, dsn: str) -> None:
    with socket.create_server(("0.0.0.0", 0)) as taken:  # noqa: S104  (as the server does)
        port = taken.getsockname()[1]
        server = start(DATABASE__DSN=dsn, REST__PORT=str(port))
        assert server.process.wait(START_TIMEOUT_S) == 1
    told = f"cannot serve REST on [::]:{port}: the port is taken; set QUEUE_OPERATOR_REST__PORT"
    assert server.log.splitlines()[-1] == f"error: {told}"
    assert "Traceback" not in server.log


DOORS = ("REST", "GRPC", "METRICS", "HEALTH")


@pytest.mark.parametrize("host", [None, "[::]"])
def test_every_port_takes_both_families(start: Start, dsn: str, host: str | None) -> None:
    ports = {f"{name}__PORT": str(free_port()) for name in DOORS}
    hosts = {f"{name}__HOST": host for name in DOORS if host}
    server = start(DATABASE__DSN=dsn, **ports, **hosts, REST__KEEP_ALIVE_S="0.2")
    server.health_port = int(ports["HEALTH__PORT"])
    server.await_ready()
    for port in ports.values():
        for address in ("127.0.0.1", "::1"):
            socket.create_connection((address, int(port)), timeout=5).close()
    # What is set for REST is what its connections have.
    with socket.create_connection(("::1", int(ports["REST__PORT"])), timeout=20) as idle:
        idle.sendall(b"GET /v1/openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n")
        received = b"".join(iter(lambda: idle.recv(65_536), b""))
    assert received.startswith(b"HTTP/1.1 ")


@pytest.mark.usefixtures("kubeconfig")
def test_sigterm_ends_the_controller_too(start: Start, controlled: dict[str, str]) -> None:
    server = start(**controlled)
    server.await_ready()
    children = server.children()
    assert server.controller() in children
    started = time.monotonic()
    assert server.end() == 0
    assert time.monotonic() - started < STOP_TIMEOUT_S
    assert "killed" not in server.log
    wait_until(lambda: not any(child.alive() for child in children), "the end of all children", 5)


@pytest.mark.usefixtures("kubeconfig")
def test_a_dead_controller_ends_the_server_with_its_exit_code(
    start: Start, controlled: dict[str, str]
) -> None:
    server = start(**controlled)
    server.await_ready()
    children = server.children()
    os.kill(server.controller().pid, signal.SIGKILL)
    assert server.process.wait(STOP_TIMEOUT_S) == 128 + signal.SIGKILL
    assert "the controller ended with exit code -9" in server.log
    wait_until(lambda: not any(child.alive() for child in children), "the end of all children", 5)


@pytest.mark.usefixtures("kubeconfig")
def test_a_killed_server_leaves_no_controller(start: Start, controlled: dict[str, str]) -> None:
    server = start(**controlled)
    server.await_ready()
    children = server.children()
    server.process.kill()
    wait_until(lambda: not any(child.alive() for child in children), "the end of all children", 10)


def test_without_a_cluster_it_ends_and_says_what_to_do(
    start: Start, dsn: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "absent"))
    server = start(DATABASE__DSN=dsn, CONTROLLER__ENABLED="true")
    assert server.process.wait(START_TIMEOUT_S) == 1
    assert "the controller ends: " in server.log
    assert "Traceback" not in server.log


def create(dsn: str, postgres_admin_dsn: str) -> None:
    name = psycopg.conninfo.conninfo_to_dict(dsn)["dbname"]
    with psycopg.connect(postgres_admin_dsn, autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(str(name))))


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


def command_line(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_bytes().decode()
