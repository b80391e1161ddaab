"""What the charts ask of the Prometheus operator, done by a Prometheus without it."""

import asyncio
import json
import shutil
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry, Counter, Gauge
from tests.integration.serving import free_port
from tests.unit.charts.rendering import ROOT, template
from tests.waiting import DEADLINE_S

from queue_operator.devcluster.processes import wait_until
from queue_operator.metrics.serving import serve

PROGRAM = ROOT / "tools" / "observability" / "scrape.py"
KINDS = ("ServiceMonitor", "PodMonitor")
OPERATOR = {
    "database": {"dsn": "postgresql://u:p@h/d"},
    "metrics": {"serviceMonitor": {"enabled": True, "interval": "1s", "scrapeTimeout": "1s"}},
}
WORKER = {
    "metrics": {"podMonitor": {"enabled": True, "interval": "1s", "scrapeTimeout": "1s"}},
}


def scrape(rendered: str, *options: str) -> str:
    """The configuration that the program writes."""
    done = subprocess.run(
        [sys.executable, PROGRAM, *options], input=rendered, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def monitored(chart: str, values: dict[str, Any]) -> str:
    known = [f"--api-versions=monitoring.coreos.com/v1/{kind}" for kind in KINDS]
    return template(chart, values, *known, release="mine", namespace="queue-system")


def check(text: str, folder: Path) -> None:
    """By promtool; raises AssertionError with its words."""
    file = folder / "prometheus.yml"
    file.write_text(text)
    promtool = shutil.which("promtool")
    assert promtool is not None
    done = subprocess.run([promtool, "check", "config", file], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("kubeconfig", ["", "/etc/kubeconfig"])
@pytest.mark.parametrize(
    ("chart", "values", "role"),
    [("queue-operator", OPERATOR, "endpointslice"), ("queue-worker", WORKER, "pod")],
)
def test_what_is_written_is_a_configuration(
    chart: str, values: dict[str, Any], role: str, kubeconfig: str, tmp_path: Path
) -> None:
    options = [f"--kubeconfig={kubeconfig}"] if kubeconfig else []
    written = yaml.safe_load(scrape(monitored(chart, values), *options))
    [found] = written["scrape_configs"]
    # That of Debian is built without it.
    [discovery] = found.pop("kubernetes_sd_configs")
    check(yaml.safe_dump(written), tmp_path)
    assert discovery.get("kubeconfig_file", "") == kubeconfig
    assert (discovery["role"], discovery["namespaces"]) == (role, {"names": ["queue-system"]})
    kept = [rule["regex"] for rule in found["relabel_configs"] if rule.get("action") == "keep"]
    assert "metrics" in kept
    assert "mine" in kept
    assert (found["scrape_interval"], found["scrape_timeout"]) == ("1s", "1s")


def test_a_chart_without_a_monitor_is_no_configuration() -> None:
    rendered = template("queue-operator", {"database": {"dsn": "postgresql://u:p@h/d"}})
    done = subprocess.run(
        [sys.executable, PROGRAM], input=rendered, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "give helm --api-versions=" in done.stderr


@contextmanager
def exposed() -> Iterator[str]:
    """Metrics of a queue with one namespace, on a port of this machine; its address."""
    registry = CollectorRegistry()
    jobs = Gauge("queueoperator_jobs", "Jobs.", ["namespace", "type", "state"], registry=registry)
    jobs.labels("shop", "mail", "running").set(3)
    Gauge("queueoperator_leader", "Leader.", registry=registry).set(1)
    Counter("queueworker_sessions", "Sessions.", registry=registry).inc()
    server, thread = serve("127.0.0.1", 0, registry)
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def prometheus(configuration: str, folder: Path) -> Iterator[str]:
    """The address of one that scrapes so."""
    program = shutil.which("prometheus")
    assert program is not None
    file, port = folder / "prometheus.yml", free_port()
    file.write_text(configuration)
    address = f"127.0.0.1:{port}"
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(
            [
                program,
                f"--config.file={file}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address={address}",
            ],
            stdout=log,
            stderr=log,
        )
    try:
        yield address
    finally:
        process.kill()
        process.wait()


def ask(address: str, expression: str) -> list[dict[str, str]]:
    """The labels of what it finds; nothing while it does not answer."""
    query = urllib.parse.urlencode({"query": expression})
    try:
        with urllib.request.urlopen(f"http://{address}/api/v1/query?{query}") as answer:
            found = json.load(answer)
    except OSError:
        return []
    return [one["metric"] for one in found["data"]["result"]]


async def test_labels_of_jobs_and_of_targets_do_not_get_in_each_others_way(tmp_path: Path) -> None:
    with exposed() as target:
        rendered = monitored("queue-operator", OPERATOR) + "\n---\n"
        text = scrape(rendered + monitored("queue-worker", WORKER), f"--target=pod-1={target}")
        check(text, tmp_path)
        with prometheus(text, tmp_path) as address:

            def has_scraped() -> bool:
                return len(ask(address, "queueworker_sessions_total")) == 2

            await asyncio.to_thread(wait_until, has_scraped, "two scrapes", DEADLINE_S)
            job = 'job="mine-queue-operator"'
            [jobs] = ask(address, f"queueoperator_jobs{{{job}}}")
            [leader] = ask(address, f"queueoperator_leader{{{job}}}")
            [session] = ask(address, 'queueworker_sessions_total{job="queue-worker"}')
    of_target = {"operator_namespace": "queue-system", "pod": "pod-1", "instance": target}
    of_target |= {"job": "mine-queue-operator", "endpoint": "metrics"}
    assert jobs == {
        "__name__": "queueoperator_jobs",
        "namespace": "shop",
        "type": "mail",
        "state": "running",
        **of_target,
    }
    assert leader == {"__name__": "queueoperator_leader", **of_target}
    assert (session["namespace"], session["pod"]) == ("queue-system", "pod-1")
