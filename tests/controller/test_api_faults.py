"""The whole server, with a worker, behind an API server that fails in each way that it can.

Ten minutes of absence are half a minute here: beyond what kopf by itself has patience for is a
matter of `Patiently`, which has no end.
"""

import json
import os
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import psycopg
import pytest
from tests.controller.kubectl import JOBS, Kubectl, queue_job
from tests.controller.proxy import Proxy
from tests.controller.verdicts import VERDICTS, away, fine
from tests.integration.serving import Server, free_port

from queue_operator.backends.postgres import PostgresBackend
from queue_operator.domain.states import JobState

PROGRAMS: Final = Path(__file__).with_name("programs")
PATIENCE_S: Final = 90
EACH: Final = 5
ABSENCE_S: Final = 30.0
MANY: Final = 130
"""More than a page, so that a list has a continue token."""


@contextmanager
def worker(server_port: int, namespace: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    settings = {
        "SERVER": f"127.0.0.1:{server_port}",
        "NAMESPACE": namespace,
        "WORKER_NAME": "worker-1",
        "HEALTH_PORT": "0",
    }
    with log.open("wb") as stream:
        process = subprocess.Popen(
            [sys.executable, "-m", "queue_operator.worker.main", "echo:worker"],
            cwd=PROGRAMS,
            env=os.environ | {f"QUEUE_OPERATOR_{key}": value for key, value in settings.items()},
            stderr=stream,
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


class Watched:
    """The server, and what must hold of its doors all the time."""

    def __init__(self, server: Server, rest_port: int, dsn: str) -> None:
        self.server = server
        self._rest = f"http://127.0.0.1:{rest_port}/v1/jobs?namespace=watched"
        self._dsn = dsn
        self._first: list[tuple[str, str]] = []

    def sessions(self) -> list[tuple[str, str]]:
        """By id, with the connection that each was opened by."""
        with psycopg.connect(self._dsn, autocommit=True) as connection:
            rows = connection.execute(
                "SELECT session_id, connection FROM queue_operator.worker_session"
            )
            return rows.fetchall()

    def connected(self) -> bool:
        self._first = self.sessions()
        return len(self._first) == 1

    def check(self) -> None:
        assert self.server.probe("readyz")[0] == 200
        with urllib.request.urlopen(self._rest, timeout=5) as answer:  # noqa: S310  (http)
            assert answer.status == 200
        assert self.sessions() == self._first


async def test_nothing_is_lost_and_no_session_is_dropped(
    kubectl: Kubectl,
    dsn: str,
    backend: PostgresBackend,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    grpc_port, rest_port = free_port(), free_port()
    with Proxy(kubectl.kubeconfig, tmp_path, fine) as proxy:
        monkeypatch.setenv("KUBECONFIG", str(proxy.kubeconfig))
        server = Server(
            {
                "DATABASE__DSN": dsn,
                "CONTROLLER__ENABLED": "true",
                "CONTROLLER__NAMESPACES": json.dumps([kubectl.namespace]),
                "CONTROLLER__RESYNC_S": "2",
                "GRPC__PORT": str(grpc_port),
                "REST__PORT": str(rest_port),
            },
            tmp_path / "serve.log",
        )
        try:
            watched = Watched(server, rest_port, dsn)
            server.await_ready("readyz/controller")
            with worker(grpc_port, kubectl.namespace, tmp_path / "worker.log") as working:
                server.until(watched.connected, "the worker's session")
                # Nobody runs these: they make the lists long.
                kubectl.apply(*(queue_job(f"long-{n}", type="nobody") for n in range(MANY)))
                for number, fault in enumerate(VERDICTS.values()):
                    names = [f"echo-{number}-{n}" for n in range(EACH)]
                    proxy.verdict = fault
                    proxy.cut()
                    kubectl.apply(*(queue_job(name) for name in names))
                    hold(watched, ABSENCE_S if fault is away else 5.0)
                    proxy.verdict = fine
                    found = [f"{JOBS}/{name}" for name in names]
                    kubectl.wait("condition=Complete", *found, timeout_s=PATIENCE_S)
                    watched.check()
                assert working.poll() is None
            assert server.end() == 0
        finally:
            server.process.kill()
            server.process.wait()
    stats = await backend.get_job_stats((), namespace=kubectl.namespace)
    assert stats.by_state[JobState.COMPLETED] == EACH * len(VERDICTS)
    assert stats.by_state[JobState.INITIAL_PENDING] == MANY
    assert stats.total_jobs == EACH * len(VERDICTS) + MANY
    assert stats.total_retries == 0


def hold(watched: Watched, seconds: float) -> None:
    """The fault lasts, and the doors are looked at meanwhile."""
    over = threading.Event()
    for _ in range(int(seconds)):
        watched.check()
        over.wait(1.0)
