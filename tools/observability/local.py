"""A whole queue on this machine, without a cluster: PostgreSQL, two replicas, workers, Prometheus.

If nothing else is asked, Prometheus scrapes each second and its rules look at windows that are ten
times shorter, so that what takes ten minutes elsewhere is seen in one.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import yaml

from observability.alerts_operator import ALL, TEXT
from observability.doorway import Doorway
from observability.durations import seconds, shortened
from observability.rules import DEFAULTS, document, filled
from observability.running import RunningPrometheus, configuration, free_port
from queue_operator.client import QueueClient
from queue_operator.devcluster.postgres import Postgres
from queue_operator.devcluster.processes import wait_until

EXAMPLE: Final = Path(__file__).resolve().parents[2] / "examples" / "04-observability"
START_S: Final = 120.0
STOP_S: Final = 40.0
NAMESPACE: Final = "shop"
_LEASE_TTL_S: Final = 3
_GONE_S: Final = 12
"""Prometheus may take ten seconds to hear that a target is gone, however fast the rules are."""


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
                least_s = _GONE_S if "up{" in rule["expr"] else 0
                held_s = max(least_s, seconds(rule["for"]) / factor)
                rule["for"] = f"{held_s * 1000:.0f}ms"
    return yaml.safe_dump(rules)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How fast time passes.

    Attributes:
        faster: how many times shorter all windows and holds of the rules are.
        scrape_s: how often Prometheus scrapes, and evaluates the rules.
        look_s: how often replicas look at what is stored.
        settings: those of the replicas that follow from it.

    """

    faster: float
    scrape_s: int
    look_s: int
    settings: Mapping[str, str]

    def rules(self) -> str:
        return filled(TEXT) if self.faster == 1 else fast_rules(self.faster)


_QUICK_SETTINGS: Final = {"METRICS__DEPTH_INTERVAL_S": "1", "METRICS__LEADER_S": "3"}
QUICK: Final = Pace(faster=10.0, scrape_s=1, look_s=1, settings=_QUICK_SETTINGS)
REAL: Final = Pace(faster=1.0, scrape_s=15, look_s=5, settings={})
"""The rules as they are shipped, and the settings as they are."""


@dataclass(frozen=True, slots=True)
class Replica:
    """One that runs, with its ports by name."""

    process: "subprocess.Popen[bytes]"
    ports: Mapping[str, int]


class Local:
    """What runs. Made by `local`. `rest` and `grpc` lead to any of the replicas."""

    def __init__(self, folder: Path, dsn: str, stack: ExitStack, pace: Pace) -> None:
        self._folder = folder
        self.dsn = dsn
        self.pace = pace
        self._stack = stack
        self._begun = 0
        self.replicas: list[Replica] = []
        self.workers: dict[str, tuple[subprocess.Popen[bytes], int]] = {}
        self.prometheus: RunningPrometheus

    def start(self, replicas: int = 2) -> Self:
        """Everything, until Prometheus has seen all of it."""
        self._run("migrate", ["-m", "queue_operator.cli.main", "migrate"], {}).wait(START_S)
        self.rest = self._stack.enter_context(Doorway())
        self.grpc = self._stack.enter_context(Doorway())
        for _ in range(replicas):
            self.replicas.append(self._begin())
        self._known()
        for name, target, capacity in (
            ("mail-0", "mail", 5),
            ("media-0", "media", 4),
            ("media-1", "media", 4),
        ):
            self.work(name, target, capacity)
        interval = f"{self.pace.scrape_s}s"
        config = configuration(self._targets, self._scraped_workers, interval, ["rules.yaml"])
        files = {"rules.yaml": self.pace.rules()}
        self.prometheus = RunningPrometheus(self._folder / "prometheus", config, files)
        self._stack.enter_context(self.prometheus)
        self.prometheus.await_ready()
        self.await_seen()
        return self

    @property
    def _targets(self) -> Path:
        return self._folder / "replicas.json"

    @property
    def _scraped_workers(self) -> Path:
        return self._folder / "workers.json"

    def await_seen(self) -> None:
        """Until Prometheus has scraped all there is, and every worker is connected."""
        wait_until(self._seen, "all to be scraped", START_S)

    def _seen(self) -> bool:
        connected = self.prometheus.api.at("count(queueworker_connected == 1)", _now())
        up = self.prometheus.api.at("count(up == 1)", _now())
        workers = len(self.workers)
        return [one.last for one in (*up, *connected)] == [len(self.replicas) + workers, workers]

    @property
    def client(self) -> QueueClient:
        """Of any replica."""
        return QueueClient(f"http://127.0.0.1:{self.rest.port}")

    def add(self) -> None:
        """One replica more, which is ready."""
        one = self._begin()
        wait_until(lambda: _is_ready(one), "a replica", START_S)
        self.replicas.append(one)
        self._known()

    def end(self) -> None:
        """The oldest replica ends. It gets no more connections, and is scraped until it is gone."""
        one = self.replicas.pop(0)
        self._lead_to_the_others()
        one.process.terminate()
        one.process.wait(STOP_S)
        self._known()

    def roll(self) -> None:
        """Every replica is replaced: a new one is ready before an old one ends."""
        for _ in tuple(self.replicas):
            self.add()
            self.end()

    def _begin(self) -> Replica:
        ports = {name: free_port() for name in ("REST", "GRPC", "METRICS", "HEALTH")}
        name = f"operator-{self._begun}"
        self._begun += 1
        settings = {
            **{f"{name}__PORT": str(port) for name, port in ports.items()},
            "REPLICA": name,
            "AUTH__MODE": "none",
            "CONTROLLER__ENABLED": "false",
            "QUEUE__LEASE_TTL_S": str(_LEASE_TTL_S),
            **self.pace.settings,
        }
        arguments = ["-m", "queue_operator.cli.main", "serve"]
        return Replica(self._run(name, arguments, settings), ports)

    def _lead_to_the_others(self) -> None:
        self.rest.ports = [one.ports["REST"] for one in self.replicas]
        self.grpc.ports = [one.ports["GRPC"] for one in self.replicas]

    def _known(self) -> None:
        self._lead_to_the_others()
        _write(self._targets, [one.ports["METRICS"] for one in self.replicas])

    def work(self, name: str, target: str, capacity: int, folder: Path = EXAMPLE) -> None:
        """Starts one worker of the handlers in a folder, the example's or another."""
        port = free_port()
        settings = {
            "SERVER": f"127.0.0.1:{self.grpc.port}",
            "NAMESPACE": NAMESPACE,
            "WORKER_NAME": name,
            "CAPACITY": str(capacity),
            "HEALTH_PORT": "0",
            "METRICS_PORT": str(port),
        }
        arguments = ["-m", "queue_operator.worker.main", "run", f"handlers:{target}"]
        self.workers[name] = (self._run(name, arguments, settings, folder), port)
        _write(self._scraped_workers, [port for _, port in self.workers.values()])

    def end_all(self) -> None:
        """Tells everybody at once, while Prometheus still scrapes: it is waited for."""
        for one in self.replicas:
            one.process.terminate()
        for process, _ in self.workers.values():
            process.terminate()

    def kill(self, name: str) -> None:
        """Ends a worker as the kernel does, without a word."""
        process, _ = self.workers[name]
        process.kill()
        process.wait()

    def _run(
        self,
        name: str,
        arguments: list[str],
        settings: dict[str, str],
        folder: Path = EXAMPLE,
    ) -> "subprocess.Popen[bytes]":
        environment = {f"QUEUE_OPERATOR_{key}": value for key, value in settings.items()}
        environment["QUEUE_OPERATOR_DATABASE__DSN"] = self.dsn
        with (self._folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, *arguments],
                cwd=folder,
                env=os.environ | environment,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self._stack.callback(_end, process)
        return process


def _write(file: Path, ports: Iterable[int]) -> None:
    """Whole or not at all: Prometheus reads it when it changes."""
    new = file.with_suffix(".new")
    new.write_text(json.dumps([{"targets": [f"127.0.0.1:{port}" for port in ports]}]))
    new.rename(file)


def _is_ready(replica: Replica) -> bool:
    if replica.process.poll() is not None:
        raise RuntimeError(f"a replica has ended with {replica.process.returncode}")
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{replica.ports['HEALTH']}/readyz"):
            return True
    except OSError:
        return False


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
def local(pace: Pace = QUICK) -> Iterator[Local]:
    """A queue that is gone when it is over."""
    folder = Path(tempfile.mkdtemp(prefix="queue-operator-seen-", dir="/var/tmp"))
    # The server runs as another user, who must be able to enter.
    folder.chmod(0o755)
    postgres = Postgres(folder / "postgres", "127.0.0.1", free_port())
    try:
        postgres.start()
        with ExitStack() as stack:
            queue = Local(folder, postgres.dsn, stack, pace)
            try:
                yield queue.start()
            finally:
                queue.end_all()
    finally:
        postgres.kill()
        shutil.rmtree(folder)
