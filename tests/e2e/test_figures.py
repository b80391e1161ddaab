"""Every expression of the dashboards, the rules and the alerts, asked of a real Prometheus that
watched the demo; and what the figures say, compared with those who know it without the operator.
"""

import json
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator

import grpc
import psycopg
import pytest
import yaml
from tests.e2e.compared import CHECKS, Check, World
from tests.e2e.observer import NAMESPACE, RULES, Observer
from tests.e2e.sources import ApiRequests, Sources
from tests.observability.promql import VARIABLES, selectors
from tests.unit.charts.rendering import ROOT

from queue_operator.devcluster import ClusterInfo
from queue_operator.devcluster.processes import wait_until
from queue_operator.wire.v1 import queue_pb2, queue_pb2_grpc

DASHBOARDS = ROOT / "charts" / "queue-operator" / "files" / "dashboards"
CHOSEN = {**VARIABLES, "$job": "queue-operator|queue-worker"}
SURVEY_S = 35
"""The operator looks at the database every half a minute, at what is stored more often."""
EMPTY = {
    "nothing went wrong at the store": ("Stale outcomes", "Errors of the store"),
    "nothing waits": ("Backlog by namespace", "Oldest waiting job of each type"),
    "no worker is busy": ("Since the last heartbeat was answered",),
    "nothing fires": ("Alerts that fire or are about to",),
}
"""Panels that rightly show nothing after the demo, and why."""


def panels() -> Iterator[tuple[str, str]]:
    """Titles and expressions, as Grafana sends them."""
    for file in sorted(DASHBOARDS.glob("*.json")):
        for panel in json.loads(file.read_text())["panels"]:
            for target in panel.get("targets", ()):
                yield f"{file.stem}: {panel['title']}", expanded(target["expr"])


def expanded(expression: str) -> str:
    for name, value in CHOSEN.items():
        expression = expression.replace(name, value)
    return expression


def rules() -> Iterator[tuple[str, str]]:
    for group in yaml.safe_load(RULES.read_text())["groups"]:
        for rule in group["rules"]:
            yield rule.get("record") or rule["alert"], rule["expr"]


@pytest.fixture(scope="module")
def world(
    cluster: ClusterInfo,
    observer: Observer,
    asked_before: ApiRequests,
    demo: subprocess.CompletedProcess[str],
) -> Iterator[World]:
    """After the demo, some refused calls, and a transaction that stays open."""
    assert demo.returncode == 0, demo.stdout[-4000:] + demo.stderr[-2000:]
    sources = Sources(cluster)
    fails_once_more(sources)
    with psycopg.connect(cluster.postgres_dsn) as stays_open:
        # It has a snapshot from here on.
        stays_open.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        stays_open.execute("SELECT count(*) FROM queue_operator.job")
        opened = time.time()
        before = observer.query('sum(queueoperator_http_requests_total{code="401"}) or vector(0)')
        refused = Refused(sources)
        refused.ask()
        seen_from = time.time() + SURVEY_S
        wait_until(
            lambda: observer.value("min(timestamp(up))") > seen_from, "the scrapes after that", 120
        )
        compared = "queueoperator_controller_last_comparison_seconds > 0"
        wait_until(lambda: bool(observer.query(compared)), "the first comparison", 120)
        yield World(
            observer, sources, opened, refused.rest, refused.grpc, before[0][1], asked_before
        )
    # The last that look at it are these tests, and it looks at the cluster every second.
    observer.end()


def fails_once_more(sources: Sources) -> None:
    """While the demo's workers are scraped for certain: they came up as their jobs did. Nobody is
    there to be told of its end.
    """
    job = yaml.safe_load((ROOT / "examples" / "01-hello" / "02-flaky.yaml").read_text())
    job["metadata"]["name"] = "flaky-again"
    job["spec"]["callbackUrl"] = "https://receiver.example/ended"
    ours = f"--namespace={NAMESPACE}"
    sources.kubectl("create", ours, "--filename=-", stdin=json.dumps(job))
    completed = "--for=jsonpath={.status.state}=COMPLETED"
    sources.kubectl("wait", ours, "queuejob/flaky-again", completed, "--timeout=120s")


class Refused:
    """Calls without a token: so many, and nobody else makes any."""

    rest, grpc = 7, 5

    def __init__(self, sources: Sources) -> None:
        self._ip = sources.operator()["status"]["podIP"]

    def ask(self) -> None:
        for _ in range(self.rest):
            with pytest.raises(urllib.error.HTTPError, match="401"):
                urllib.request.urlopen(f"http://{self._ip}:8080/v1/jobs/none", timeout=10)
        with grpc.insecure_channel(f"{self._ip}:50051") as channel:
            queue = queue_pb2_grpc.QueueStub(channel)
            for _ in range(self.grpc):
                with pytest.raises(grpc.RpcError) as raised:
                    queue.GetJob(queue_pb2.GetJobRequest(job_id="none"), timeout=10)
                assert raised.value.code() == grpc.StatusCode.UNAUTHENTICATED


def test_every_panel_shows_something(world: World) -> None:
    may_be_empty = {title for titles in EMPTY.values() for title in titles}
    observer = world.observer
    empty = {title for title, asked in panels() if not observer.ever(asked, observer.began)}
    assert {title.partition(": ")[2] for title in empty} <= may_be_empty, sorted(empty)


def test_every_rule_is_evaluated(world: World) -> None:
    found = world.observer.rules()
    assert {rule["name"] for rule in found} == {name for name, _ in rules()}
    assert not [rule for rule in found if rule["health"] != "ok"]


def test_alerts_are_quiet_but_for_what_the_demo_breaks(world: World) -> None:
    # Other tests on this cluster may have left jobs and namespaces that nobody serves any more.
    found = world.observer.query('ALERTS{alertstate="firing", namespace=~"demo|"}')
    firing = {labels["alertname"] for labels, _ in found}
    assert firing <= {"QueueOperatorDeadLetters", "QueueOperatorRefusedNamespaces"}


def test_every_metric_that_is_asked_for_is_compared() -> None:
    asked = {
        selector.metric
        for _, expression in (*panels(), *rules())
        for selector in selectors(expression)
    }
    named = {rule for rule, _ in rules() if ":" in rule}
    plain = {
        name.removesuffix("_bucket").removesuffix("_count").removesuffix("_sum")
        for name in asked - named - {"ALERTS"}
    }
    assert plain <= {metric for check in CHECKS for metric in check.metrics}


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: " ".join(check.metrics))
def test_a_figure_is_what_others_say(world: World, check: Check) -> None:
    check.compare(world)
