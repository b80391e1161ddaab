"""A Prometheus beside the tests and beside the show, with our rules."""

import secrets
import signal
import socket
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import yaml

from observability.asking import NoAnswer, Prometheus
from queue_operator.devcluster.processes import wait_until

OPERATOR_JOB, WORKER_JOB = "queue-operator", "queue-worker"
READY_S: Final = 120.0
STOP_S: Final = 30.0
_LEAST_PORT, _PORTS = 20_000, 12_000


Targets = Sequence[str] | Path
"""Addresses (`host:port`), or a file in which they are, which may change."""


def configuration(
    operators: Targets, workers: Targets, interval: str, rules: Sequence[str] = ()
) -> dict[str, Any]:
    """Of a Prometheus that scrapes these targets and evaluates these files."""
    return {
        "global": {"scrape_interval": interval, "evaluation_interval": interval},
        "rule_files": [*rules],
        "scrape_configs": [
            _job(OPERATOR_JOB, operators, honor_labels=True),
            _job(WORKER_JOB, workers, honor_labels=False),
        ],
    }


def _job(name: str, targets: Targets, *, honor_labels: bool) -> dict[str, Any]:
    job: dict[str, Any] = {"job_name": name, "honor_labels": honor_labels}
    if isinstance(targets, Path):
        return {**job, "file_sd_configs": [{"files": [str(targets)], "refresh_interval": "1s"}]}
    return {**job, "static_configs": [{"targets": [*targets]}]}


class RunningPrometheus:
    """One process of Prometheus, with its data in `folder`. A context manager."""

    def __init__(
        self, folder: Path, config: Mapping[str, Any], files: Mapping[str, str] | None = None
    ) -> None:
        """`files` are further files beside the configuration, such as rules."""
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in {
            **(files or {}),
            "prometheus.yaml": yaml.safe_dump(dict(config)),
        }.items():
            (folder / name).write_text(text)
        self._folder = folder
        self._port = free_port()
        self.url = f"http://127.0.0.1:{self._port}"
        self.api = Prometheus(self.url)

    def __enter__(self) -> Self:
        command = [
            "prometheus",
            "--config.file=prometheus.yaml",
            "--storage.tsdb.path=data",
            f"--web.listen-address=127.0.0.1:{self._port}",
            "--log.level=warn",
        ]
        with (self._folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                command, cwd=self._folder, stdout=log, stderr=subprocess.STDOUT
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def await_ready(self) -> None:
        """Raises RuntimeError with its log if it ended, NotReady if it takes too long."""

        def ready() -> bool:
            if self._process.poll() is not None:
                raise RuntimeError((self._folder / "log").read_text())
            try:
                self.api.get("status/runtimeinfo")
            except NoAnswer:
                return False
            return True

        wait_until(ready, "Prometheus", READY_S)

    def firing(self) -> set[str]:
        """The names of the alerts that fire now."""
        return {
            one["labels"]["alertname"]
            for one in self.api.get("alerts")["alerts"]
            if one["state"] == "firing"
        }


def free_port() -> int:
    """A port that nobody listens on. It is none of those that the kernel gives to connections,
    which could take it until it is used.
    """
    while True:
        port = _LEAST_PORT + secrets.randbelow(_PORTS)
        with socket.socket() as found, suppress(OSError):
            found.bind(("127.0.0.1", port))
            return port
