"""A whole queue on this machine, without a cluster: PostgreSQL, two replicas, workers, Prometheus.

Prometheus scrapes each second and its rules look at windows that are ten times shorter, so that
what takes ten minutes elsewhere is seen in one.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Self

import yaml

from observability.alerts_operator import ALL
from observability.durations import seconds, shortened
from observability.rules import DEFAULTS, document, filled
from observability.running import RunningPrometheus, configuration, free_port
from queue_operator.client import QueueClient
from queue_operator.devcluster.postgres import Postgres
from queue_operator.devcluster.processes import wait_until

EXAMPLE: Final = Path(__file__).resolve().parents[2] / "examples" / "04-observability"
FASTER: Final = 10.0
START_S: Final = 120.0
STOP_S: Final = 40.0
NAMESPACE: Final = "shop"
_LEASE_TTL_S: Final = 3


def fast_rules(factor: float) -> str:
    """The rules, with all windows and holds shorter by a factor, and so the time that a growing
    backlog would need.
    """
    backlog_s = DEFAULTS["backlogSeconds"] / factor
    rules: dict[str, Any] = yaml.safe_load(filled(document(ALL), backlogSeconds=backlog_s))
    for group in rules["groups"]:
        for rule in group["rules"]:
            rule["expr"] = shortened(rule["expr"], factor)
            if "for" in rule:
                rule["for"] = f"{seconds(rule['for']) / factor * 1000:.0f}ms"
    return yaml.safe_dump(rules)


class Local:
    """What runs. Made by `local`."""

    def __init__(self, folder: Path, dsn: str, stack: ExitStack) -> None:
        self._folder = folder
        self._dsn = dsn
        self._stack = stack
        self.operators: list[dict[str, int]] = []
        self.workers: dict[str, tuple[subprocess.Popen[bytes], int]] = {}
        self.prometheus: RunningPrometheus

    def start(self, replicas: int = 2) -> Self:
        """Everything, until Prometheus has seen all of it."""
        self._run("migrate", ["-m", "queue_operator.cli.main", "migrate"], {}).wait(START_S)
        for number in range(replicas):
            self._serve(number)
        for name, target, capacity in (
            ("mail-0", "mail", 5),
            ("media-0", "media", 4),
            ("media-1", "media", 4),
        ):
            self.work(name, target, capacity)
        operators = [f"127.0.0.1:{ports['METRICS']}" for ports in self.operators]
        workers = [f"127.0.0.1:{port}" for _, port in self.workers.values()]
        config = configuration(operators, workers, "1s", ["rules.yaml"])
        files = {"rules.yaml": fast_rules(FASTER)}
        self.prometheus = RunningPrometheus(self._folder / "prometheus", config, files)
        self._stack.enter_context(self.prometheus)
        self.prometheus.await_ready()
        wait_until(lambda: self._seen(len(operators) + len(workers)), "all to be scraped", START_S)
        return self

    def _seen(self, targets: int) -> bool:
        connected = self.prometheus.api.at("count(queueworker_connected == 1)", _now())
        up = self.prometheus.api.at("count(up == 1)", _now())
        workers = len(self.workers)
        return [one.last for one in (*up, *connected)] == [targets, workers]

    @property
    def client(self) -> QueueClient:
        """Of the first replica."""
        return QueueClient(f"http://127.0.0.1:{self.operators[0]['REST']}")

    def _serve(self, number: int) -> None:
        ports = {name: free_port() for name in ("REST", "GRPC", "METRICS", "HEALTH")}
        settings = {
            **{f"{name}__PORT": str(port) for name, port in ports.items()},
            "AUTH__MODE": "none",
            "CONTROLLER__ENABLED": "false",
            "QUEUE__LEASE_TTL_S": str(_LEASE_TTL_S),
            "METRICS__DEPTH_INTERVAL_S": "1",
            "METRICS__LINGER_S": "0",
        }
        arguments = ["-m", "queue_operator.cli.main", "serve"]
        self._run(f"operator-{number}", arguments, settings)
        self.operators.append(ports)

    def work(self, name: str, target: str, capacity: int) -> None:
        """Starts one worker of the example."""
        port = free_port()
        replica = self.operators[len(self.workers) % len(self.operators)]
        settings = {
            "SERVER": f"127.0.0.1:{replica['GRPC']}",
            "NAMESPACE": NAMESPACE,
            "WORKER_NAME": name,
            "CAPACITY": str(capacity),
            "HEALTH_PORT": "0",
            "METRICS_PORT": str(port),
        }
        arguments = ["-m", "queue_operator.worker.main", "run", f"handlers:{target}"]
        self.workers[name] = (self._run(name, arguments, settings), port)

    def kill(self, name: str) -> None:
        """Ends a worker as the kernel does, without a word."""
        process, _ = self.workers[name]
        process.kill()
        process.wait()

    def _run(
        self, name: str, arguments: list[str], settings: dict[str, str]
    ) -> "subprocess.Popen[bytes]":
        environment = {f"QUEUE_OPERATOR_{key}": value for key, value in settings.items()}
        environment["QUEUE_OPERATOR_DATABASE__DSN"] = self._dsn
        with (self._folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, *arguments],
                cwd=EXAMPLE,
                env=os.environ | environment,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self._stack.callback(_end, process)
        return process


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(STOP_S)
        return
    process.kill()
    process.wait()


def _now() -> float:
    return time.time()


@contextmanager
def local() -> Iterator[Local]:
    """A queue that is gone when it is over."""
    folder = Path(tempfile.mkdtemp(prefix="queue-operator-seen-", dir="/var/tmp"))
    # The server runs as another user, who must be able to enter.
    folder.chmod(0o755)
    postgres = Postgres(folder / "postgres", "127.0.0.1", free_port())
    try:
        postgres.start()
        with ExitStack() as stack:
            yield Local(folder, postgres.dsn, stack).start()
    finally:
        postgres.kill()
        shutil.rmtree(folder)
