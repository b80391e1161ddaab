"""A server, a worker and a collector of spans, each as a process or a port of its own."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from tests.conftest import migrated_database
from tests.integration.serving import Server
from tests.otlp import Collector, collecting

_PROGRAMS: Final = Path(__file__).parent / "programs"
_SERVING: Final = re.compile(r"serving: REST on port (\d+), gRPC on port (\d+)")


@dataclass(frozen=True, slots=True)
class Stage:
    """A server and a worker that run, and how to reach them."""

    rest: str
    grpc: str
    dsn: str
    server: Server
    worker: "subprocess.Popen[bytes]"
    worker_log: Path


@contextmanager
def running(dsn: str, folder: Path, endpoint: str = "") -> Iterator[Stage]:
    """Spans of both go to `endpoint`; without one there are none."""
    server = Server({"DATABASE__DSN": dsn, "TRACING__ENDPOINT": endpoint}, folder / "serve.log")
    worker, worker_log = None, folder / "worker.log"
    try:
        server.await_ready()
        ports = _SERVING.search(server.log)
        assert ports is not None, server.log
        environment = {
            "QUEUE_OPERATOR_SERVER": f"127.0.0.1:{ports[2]}",
            "QUEUE_OPERATOR_HEALTH_PORT": "0",
            "QUEUE_OPERATOR_METRICS_PORT": "0",
            "QUEUE_OPERATOR_WORKER_NAME": "w-1",
        }
        if endpoint:
            environment["OTEL_EXPORTER_OTLP_ENDPOINT"] = endpoint
            environment["OTEL_SERVICE_NAME"] = "mailer"
        with worker_log.open("wb") as said:
            worker = subprocess.Popen(
                [sys.executable, "-m", "queue_operator.worker.main", "handlers:worker"],
                cwd=_PROGRAMS,
                env=os.environ | environment,
                stderr=said,
            )
        yield Stage(
            f"http://127.0.0.1:{ports[1]}",
            f"127.0.0.1:{ports[2]}",
            dsn,
            server,
            worker,
            worker_log,
        )
    finally:
        for process in filter(None, (worker, server.process)):
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def dsn(postgres_admin_dsn: str) -> Iterator[str]:
    with migrated_database(postgres_admin_dsn, "tracing") as address:
        yield address


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with collecting() as started:
        yield started


@pytest.fixture(scope="module")
def stage(
    dsn: str, collector: Collector, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stage]:
    with pytest.MonkeyPatch.context() as patch:
        # Else spans are sent every five seconds.
        patch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
        with running(dsn, tmp_path_factory.mktemp("traced"), collector.address) as started:
            yield started
