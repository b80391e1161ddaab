"""What the figures must be, asked of others than the operator and its workers: Postgres, the API
server, and the kernel.
"""

import json
import os
import re
import subprocess
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import psycopg
from prometheus_client.parser import text_string_to_metric_families
from tests.e2e.observer import NAMESPACE, SYSTEM
from tests.integration.metrics.fleet import stored

from queue_operator.devcluster import ClusterInfo

_SCHEMA: Final = "queue_operator"
_TICK_S: Final = 1 / os.sysconf("SC_CLK_TCK")


class Process:
    """A process of this machine, in a pod or not, as the kernel tells of it."""

    def __init__(self, pid: int) -> None:
        self._folder = Path(f"/proc/{pid}")

    @property
    def resident_bytes(self) -> int:
        found = re.search(r"^VmRSS:\s+(\d+) kB$", (self._folder / "status").read_text(), re.M)
        assert found is not None
        return int(found[1]) * 1024

    @property
    def nice(self) -> int:
        return int(self._fields()[16])

    @property
    def cpu_s(self) -> float:
        return sum(map(int, self._fields()[11:13])) * _TICK_S

    @property
    def age_s(self) -> float:
        up_s = float(Path("/proc/uptime").read_text().split()[0])
        return up_s - int(self._fields()[19]) * _TICK_S

    @property
    def open_files(self) -> int:
        return len(list((self._folder / "fd").iterdir()))

    def _fields(self) -> list[str]:
        """Of `stat`, from the state on: what stands before may have spaces."""
        return (self._folder / "stat").read_text().rpartition(")")[2].split()


@dataclass(frozen=True)
class ApiRequests:
    """What the API server has counted."""

    series: Sequence[tuple[Mapping[str, str], float]]

    def count(self, **labels: str) -> float:
        """The sum over the series with these labels."""
        return sum(value for told, value in self.series if labels.items() <= told.items())


class Sources:
    """Who else knows."""

    def __init__(self, cluster: ClusterInfo) -> None:
        self._cluster = cluster

    def sql(self, statement: str) -> float:
        """One number."""
        with psycopg.connect(self._cluster.postgres_dsn, autocommit=True) as connection:
            connection.execute(f"SET search_path = {_SCHEMA}")
            row = connection.execute(statement).fetchone()
        assert row is not None
        return float(row[0])

    def rows(self, statement: str) -> dict[str, float]:
        """A number for each name."""
        with psycopg.connect(self._cluster.postgres_dsn, autocommit=True) as connection:
            connection.execute(f"SET search_path = {_SCHEMA}")
            found = connection.execute(statement).fetchall()
        return {str(name): float(number) for name, number in found}

    def history(self) -> Counter[tuple[str, ...]]:
        """Counters by what became of each job and each attempt, see `fleet.stored`."""
        return stored(self._cluster.postgres_dsn)

    def kubectl(self, *arguments: str, stdin: str = "") -> str:
        command = [str(self._cluster.kubectl), f"--kubeconfig={self._cluster.kubeconfig}"]
        done = subprocess.run(
            [*command, *arguments], input=stdin, capture_output=True, text=True, check=True
        )
        return done.stdout

    def objects(self, *arguments: str) -> list[dict[str, Any]]:
        listed = json.loads(self.kubectl("get", *arguments, "--output=json"))
        found: list[dict[str, Any]] = listed["items"]
        return found

    def api_requests(self) -> ApiRequests:
        text = self.kubectl("get", "--raw", "/metrics")
        return ApiRequests(
            [
                (sample.labels, sample.value)
                for family in text_string_to_metric_families(text)
                for sample in family.samples
                if sample.name == "apiserver_request_total"
            ]
        )

    def leases(self) -> list[dict[str, Any]]:
        """Those that say whose queue a namespace belongs to."""
        found = self.objects("leases", "--all-namespaces")
        return [one for one in found if one["metadata"]["name"] == "queueoperator.dev"]

    def own_leases(self) -> list[dict[str, Any]]:
        """Those of the database of this cluster."""
        [(system, database)] = self.rows(
            "SELECT system_identifier, oid FROM pg_control_system(), pg_database"
            " WHERE datname = current_database()"
        ).items()
        holder = f"{system}/{database:.0f}"
        return [one for one in self.leases() if one["spec"]["holderIdentity"] == holder]

    def pods(self, namespace: str, part: str) -> list[dict[str, Any]]:
        """Those that live, of a chart."""
        selector = f"--selector=app.kubernetes.io/name={part}"
        found = self.objects("pods", f"--namespace={namespace}", selector)
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def workers(self) -> list[dict[str, Any]]:
        return self.pods(NAMESPACE, "queue-worker")

    def operator(self) -> dict[str, Any]:
        [pod] = self.pods(SYSTEM, "queue-operator")
        return pod

    def server_and_controller(self) -> tuple[Process, Process]:
        """Two processes of the operator's pod: the older one began the others."""
        server, controller, _ = self._of_operator()
        return server, controller

    def sender(self) -> Process:
        """The one that tells receivers, behind all others."""
        return self._of_operator()[2]

    def _of_operator(self) -> tuple[Process, Process, Process]:
        [container] = self.operator()["status"]["containerStatuses"]
        found = self._processes(container["containerID"], 3)
        server, controller, sender = sorted(found, key=lambda one: one.nice > 0)
        return server, controller, sender

    def worker_process(self, pod: dict[str, Any]) -> Process:
        [container] = pod["status"]["containerStatuses"]
        return self._processes(container["containerID"], 2)[0]

    def _processes(self, container_id: str, count: int) -> list[Process]:
        """The largest of a container in the order of their start."""
        wanted = container_id.rpartition("/")[2]
        pids = [
            int(entry.name)
            for entry in Path("/proc").iterdir()
            if entry.name.isdigit() and wanted in _text(entry / "cgroup")
        ]
        found = [Process(pid) for pid in pids]
        large = sorted(found, key=lambda one: one.resident_bytes, reverse=True)[:count]
        return sorted(large, key=lambda one: one.age_s, reverse=True)


def _text(path: Path) -> str:
    """Empty for a process that is gone."""
    try:
        return path.read_text()
    except OSError:
        return ""


def since_s(timestamp: str) -> float:
    """Seconds since a time of the API server's."""
    return time.time() - datetime.fromisoformat(timestamp).timestamp()
