"""A real Prometheus that watches a cluster as the charts' monitors ask, with our rules."""

import json
import os
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any, Final

import yaml
from tests.e2e.discovery import Discovery
from tests.integration.serving import free_port
from tests.unit.charts.rendering import ROOT, template

from queue_operator.devcluster import ClusterInfo
from queue_operator.devcluster.processes import wait_until

Labels = dict[str, str]
SCRAPE: Final = ROOT / "tools" / "observability" / "scrape.py"
RULES: Final = ROOT / "docs" / "reference" / "prometheus-rules.yaml"
SYSTEM, NAMESPACE = "queue-system", "demo"
_EVERY: Final = {"enabled": True, "interval": "1s", "scrapeTimeout": "1s"}
_OPERATOR: Final = {
    "database": {"dsn": "postgresql://u:p@h/d"},
    "metrics": {"serviceMonitor": _EVERY},
}
_WORKER: Final = {
    "image": {"repository": "workers", "tag": "1"},
    "server": "queue-operator:50051",
    "metrics": {"podMonitor": _EVERY},
}
_KINDS: Final = ("ServiceMonitor", "PodMonitor")
POOLS: Final = ("a", "b")


class Observer:
    """The process of Prometheus, and what it answers."""

    def __init__(self, cluster: ClusterInfo, folder: Path) -> None:
        program = shutil.which("prometheus")
        assert program is not None
        config = folder / "prometheus.yml"
        self._discovery = Discovery(cluster, folder)
        config.write_text(yaml.safe_dump(_configuration(self._discovery)))
        self._discovery.start()
        self._port = free_port()
        self._log = folder / "prometheus.log"
        self.began = time.time()
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [
                    program,
                    f"--config.file={config}",
                    f"--storage.tsdb.path={folder / 'data'}",
                    f"--web.listen-address=127.0.0.1:{self._port}",
                ],
                stdout=log,
                stderr=subprocess.STDOUT,
                # The API server is on this machine, whatever stands between it and others.
                env=os.environ | {"NO_PROXY": "*"},
            )

    @property
    def runs(self) -> bool:
        return self._process.poll() is None

    def await_ready(self) -> None:
        wait_until(lambda: self._answers("/-/ready"), f"Prometheus, see {self._log}", 60)

    def end(self) -> None:
        """May be called again."""
        self._discovery.end()
        self._process.terminate()
        self._process.wait(30)

    def query(self, expression: str) -> list[tuple[Labels, float]]:
        """The vector that the expression is now; a scalar has no labels. Raises AssertionError
        with Prometheus' words where it is none.
        """
        asked = urllib.parse.urlencode({"query": expression})
        try:
            found = self._get(f"/api/v1/query?{asked}")
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{expression}: {error.read().decode()}") from error
        result = found["data"]["result"]
        if found["data"]["resultType"] == "scalar":
            return [({}, float(result[1]))]
        return [(one["metric"], float(one["value"][1])) for one in result]

    def ever(self, expression: str, since: float) -> bool:
        """Whether it had a value at some time from `since` (seconds of Unix) until now."""
        about = {"query": expression, "start": since, "end": time.time(), "step": 5}
        found = self._get(f"/api/v1/query_range?{urllib.parse.urlencode(about)}")
        return bool(found["data"]["result"])

    def value(self, expression: str) -> float:
        """The one value that the expression has."""
        found = self.query(expression)
        assert len(found) == 1, (expression, found)
        return found[0][1]

    def by(self, label: str, expression: str) -> dict[str, float]:
        """The values by one of their labels."""
        return {labels.get(label, ""): value for labels, value in self.query(expression)}

    def rules(self) -> list[dict[str, Any]]:
        """Every rule, with its health and, of alerts, its state."""
        groups = self._get("/api/v1/rules")["data"]["groups"]
        return [rule for group in groups for rule in group["rules"]]

    def _answers(self, path: str) -> bool:
        try:
            self._get(path, text=True)
        except (OSError, urllib.error.URLError):
            return False
        return True

    def _get(self, path: str, *, text: bool = False) -> Any:
        with urllib.request.urlopen(f"http://127.0.0.1:{self._port}{path}", timeout=30) as answer:
            content = answer.read().decode()
        return content if text else json.loads(content)


def _configuration(discovery: Discovery) -> dict[str, Any]:
    known = [f"--api-versions=monitoring.coreos.com/v1/{kind}" for kind in _KINDS]
    monitors = template("queue-operator", _OPERATOR, *known, namespace=SYSTEM)
    for pool in POOLS:
        values = {**_WORKER, "tags": [f"pool={pool}"]}
        release = f"workers-{pool}"
        monitors += template("queue-worker", values, *known, release=release, namespace=NAMESPACE)
    done = subprocess.run(
        [sys.executable, SCRAPE],
        input=monitors,
        capture_output=True,
        text=True,
        check=True,
    )
    written: dict[str, Any] = yaml.safe_load(done.stdout)
    for scrape in written["scrape_configs"]:
        [kubernetes] = scrape.pop("kubernetes_sd_configs")
        file = str(discovery.file(kubernetes["role"]))
        scrape["file_sd_configs"] = [{"files": [file], "refresh_interval": "1s"}]
    return {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(RULES)],
        **written,
    }
