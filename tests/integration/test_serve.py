"""`queue-operator serve` as the process that it is in production: how it starts and ends."""

import asyncio
import json
import os
import re
import signal
import socket
import ssl
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Final, Protocol

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo
from tests.authority import Authority
from tests.integration.serving import START_TIMEOUT_S, STOP_TIMEOUT_S, Server, free_port
from tests.unit.metrics.exposition import Samples, key, scraped

from queue_operator.api.routes import OPERATIONS
from queue_operator.backends.postgres import migrate
from queue_operator.backends.postgres.migrate import migrations
from queue_operator.crd.names import QUEUE_JOB, QUEUE_WORKER
from queue_operator.devcluster import ClusterInfo
from queue_operator.devcluster.commands import run
from queue_operator.devcluster.processes import all_processes, wait_until
from queue_operator.metrics.replica_table import REPLICA
from queue_operator.supervisor.child import STOP_S

CRDS = Path(__file__).parents[2] / "crds"
AWAY = """
apiVersion: v1
kind: Config
clusters: [{name: away, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: away, user: {}}]
contexts: [{name: away, context: {cluster: away, user: away}}]
current-context: away
"""


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


def is_open(port: int) -> bool:
    try:
        socket.create_connection(("localhost", port), timeout=5).close()
    except OSError:
        return False
    return True


def test_a_sender_that_gets_no_turn_of_the_processor_holds_no_door_open(
    start: Start, dsn: str
) -> None:
    port = free_port()
    server = start(DATABASE__DSN=dsn, WEBHOOKS__ENABLED="true", REST__PORT=str(port))
    server.await_ready()
    server.until(lambda: "sending messages to callback URLs" in server.log, "the sender")
    sender = server.controller()
    os.kill(sender.pid, signal.SIGSTOP)
    server.process.send_signal(signal.SIGTERM)
    wait_until(lambda: not is_open(port), "REST to close", STOP_TIMEOUT_S)
    # It is given its time meanwhile, and no more.
    assert sender in server.children()
    assert server.process.wait(STOP_S + STOP_TIMEOUT_S) == 0
    assert sender not in all_processes()
    assert "the sender of messages did not end in time and is killed" in server.log


def test_it_waits_for_its_database_and_says_so_once(
    start: Start, absent_dsn: str, postgres_admin_dsn: str
) -> None:
    server = start(DATABASE__DSN=absent_dsn)
    server.until(lambda: "does not exist" in server.log, "the first complaint")
    assert server.probe("healthz")[0] == 200
    status, body = server.probe("readyz")
    assert status == 503
    assert json.loads(body)["checks"] == {"doors": "UNAVAILABLE"}
    assert server.probe("readyz/store")[0] == 503
    create(absent_dsn, postgres_admin_dsn)
    server.until(lambda: "run `queue-operator migrate`" in server.log, "the second complaint")
    shipped = migrations()
    asyncio.run(migrate(absent_dsn, shipped=shipped[:1]))
    server.until(lambda: f"lacks {shipped[1].name}" in server.log, "the third complaint")
    asyncio.run(migrate(absent_dsn))
    server.await_ready()
    # A migration is several transactions: between them less is missing, which is said as well.
    absent, *behind = re.findall(r"WARNING .*?: (.*); trying again until it is there", server.log)
    assert "does not exist" in absent
    lacking = [re.findall(r"\d{4}_\w+", complaint) for complaint in behind]
    names = [one.name for one in shipped]
    assert lacking[0] == names, server.log
    assert all(less == names[-len(less) :] for less in lacking), server.log
    assert all(len(less) < len(more) for more, less in pairwise(lacking)), server.log
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


def test_rest_speaks_tls_where_it_is_given_a_certificate(
    start: Start, dsn: str, tmp_path: Path
) -> None:
    authority, port = Authority(tmp_path), free_port()
    certificate, key = authority.issue("server", "localhost")
    server = start(
        DATABASE__DSN=dsn,
        REST__PORT=str(port),
        REST__CERTIFICATE_FILE=str(certificate),
        REST__KEY_FILE=str(key),
    )
    server.await_ready()
    trusting = ssl.create_default_context(cafile=authority.file)
    address = f"https://localhost:{port}/v1/openapi.json"
    with urllib.request.urlopen(address, timeout=20, context=trusting) as answer:
        assert answer.status == 200
    with socket.create_connection(("localhost", port), timeout=20) as clear:
        clear.sendall(b"GET /v1/openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert not clear.recv(100).startswith(b"HTTP/")


def test_each_list_that_takes_no_argument_is_answered(start: Start, dsn: str) -> None:
    """What is served is not the store of the other tests, but one that is measured."""
    port = free_port()
    server = start(DATABASE__DSN=dsn, REST__PORT=str(port))
    server.await_ready()
    lists = [
        one.path
        for one in OPERATIONS
        if one.method == "GET" and "{" not in one.path and not one.streams
    ]
    assert "/v1/webhooks" in lists
    for path in lists:
        with urllib.request.urlopen(f"http://localhost:{port}{path}", timeout=20) as answer:
            assert answer.status == 200, path


ASKING: Final = b"GET /v1/openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"


def connected(address: tuple[str, int]) -> socket.socket:
    return socket.create_connection(address, timeout=20)


def test_ports_have_as_many_connections_as_they_are_given(start: Start, dsn: str) -> None:
    ports = {f"{name}__PORT": str(free_port()) for name in ("REST", "GRPC")}
    server = start(DATABASE__DSN=dsn, REST__CONNECTIONS="1", GRPC__CONNECTIONS="1", **ports)
    server.await_ready()
    rest, grpc = (("127.0.0.1", int(port)) for port in ports.values())
    with connected(rest) as idle, connected(rest) as asking:
        # Who only connects gives way.
        assert idle.recv(1) == b""
        asking.sendall(ASKING)
        assert asking.recv(1) != b""
    with connected(grpc) as first:
        with connected(grpc) as one_more:
            assert one_more.recv(1) == b""
        first.sendall(ASKING)
        assert first.recv(1) != b""


def test_it_tells_of_itself_and_of_its_database(start: Start, dsn: str) -> None:
    port = free_port()
    server = start(DATABASE__DSN=dsn, METRICS__PORT=str(port))
    server.await_ready()
    # Those of its other processes have tests of their own.
    others = ("_controller_", "_webhook_")
    wanted = {one.name for one in REPLICA if not any(other in one.name for other in others)}
    # Series that begin with the first request or call.
    wanted -= {metric.name for metric in REPLICA if {"route", "method"} & {*metric.labels}}
    server.until(
        lambda: wanted <= {re.sub("_(bucket|sum|count)$", "", name) for name, _ in scraped(port)},
        "the first look at the database",
    )
    found = scraped(port)
    assert not [name for name, _ in found if "controller" in name]
    assert found[key("queueoperator_database_table_bytes", table="job")] > 0
    assert found[key("queueoperator_store_connection_wait_seconds_count")] > 0
    assert found[key("process_cpu_seconds_total")] > 0
    assert server.end() == 0


def assert_none_went_back(before: Samples, after: Samples) -> None:
    counters = {
        key: value
        for key, value in before.items()
        if key[0].startswith(("queueoperator_controller", "queueoperator_event_loop"))
        and key[0].endswith(("_total", "_count", "_sum", "_bucket"))
    }
    assert len(counters) > 20
    assert {key for key, value in counters.items() if after[key] < value} == set()


@pytest.mark.usefixtures("kubeconfig")
def test_sigterm_ends_the_controller_too(start: Start, controlled: dict[str, str]) -> None:
    server = start(**controlled)
    server.await_ready("readyz/controller")
    children = server.children()
    assert server.controller() in children
    started = time.monotonic()
    assert server.end() == 0
    assert time.monotonic() - started < STOP_TIMEOUT_S
    assert "killed" not in server.log
    wait_until(lambda: not any(child.alive() for child in children), "the end of all children", 5)


@pytest.mark.usefixtures("kubeconfig")
def test_a_dead_controller_is_started_again_and_the_doors_stay_open(
    start: Start, controlled: dict[str, str]
) -> None:
    port = free_port()
    server = start(**controlled, METRICS__PORT=str(port))
    server.await_ready("readyz/controller")
    # Its loop is looked at every half second, and the first look may be yet to come.
    lag = key("queueoperator_event_loop_lag_seconds_count", process="controller")
    server.until(lambda: scraped(port)[lag] > 0, "a look at the controller's loop")
    before = scraped(port)
    assert before[key("queueoperator_controller_up")] == 1
    # Those of kopf, too: it lists and watches both kinds.
    assert before[key("queueoperator_controller_api_requests_total", code="200")] >= 4
    assert before[key("queueoperator_controller_resident_memory_bytes")] > 10e6
    killed = server.controller()
    os.kill(killed.pid, signal.SIGKILL)
    server.until(lambda: "the controller ended with exit code -9" in server.log, "the report")
    assert server.probe("readyz")[0] == 200
    assert_none_went_back(before, scraped(port))
    server.await_ready("readyz/controller")
    assert server.controller() != killed
    after = scraped(port)
    assert after[key("queueoperator_controller_restarts_total")] == 1
    assert_none_went_back(before, after)
    requests = key("queueoperator_controller_api_requests_total", code="200")
    assert after[requests] >= before[requests] + 4
    assert server.end() == 0
    assert "Traceback" not in server.log


@pytest.mark.usefixtures("kubeconfig")
def test_a_hung_controller_is_killed_and_started_again(
    start: Start, controlled: dict[str, str]
) -> None:
    server = start(**controlled, CONTROLLER__HUNG_AFTER_S="5")
    server.await_ready("readyz/controller")
    hung = server.controller()
    os.kill(hung.pid, signal.SIGSTOP)
    server.until(lambda: "and is killed" in server.log, "the end of the hung controller")
    assert server.probe("readyz")[0] == 200
    server.await_ready("readyz/controller")
    assert server.controller() != hung
    assert server.end() == 0


@pytest.mark.usefixtures("kubeconfig")
def test_a_killed_server_leaves_no_controller(start: Start, controlled: dict[str, str]) -> None:
    server = start(**controlled)
    server.await_ready("readyz/controller")
    children = server.children()
    server.process.kill()
    wait_until(lambda: not any(child.alive() for child in children), "the end of all children", 10)


def test_without_a_way_to_a_cluster_it_ends_and_says_what_to_do(
    start: Start, dsn: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "absent"))
    server = start(DATABASE__DSN=dsn, CONTROLLER__ENABLED="true")
    assert server.process.wait(START_TIMEOUT_S) == 1
    assert server.log.startswith("error: no way to the Kubernetes API: ")
    assert "QUEUE_OPERATOR_CONTROLLER__ENABLED=false" in server.log
    assert "Traceback" not in server.log


def test_a_cluster_that_is_away_is_waited_for_behind_open_doors(
    start: Start, dsn: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    kubeconfig = tmp_path / "away.yaml"
    kubeconfig.write_text(AWAY)
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    port = free_port()
    server = start(DATABASE__DSN=dsn, CONTROLLER__ENABLED="true", METRICS__PORT=str(port))
    server.await_ready()
    server.until(lambda: "custom resources are not served yet" in server.log, "the complaint")
    status, body = server.probe("readyz/controller")
    assert (status, json.loads(body)["checks"]) == (503, {"controller": "UNAVAILABLE"})
    found = scraped(port)
    assert found[key("queueoperator_controller_api_requests_total", code="none")] >= 1
    assert found[key("queueoperator_controller_up")] == 0
    assert server.end() == 0
    assert "Traceback" not in server.log


def create(dsn: str, postgres_admin_dsn: str) -> None:
    name = psycopg.conninfo.conninfo_to_dict(dsn)["dbname"]
    with psycopg.connect(postgres_admin_dsn, autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(str(name))))
