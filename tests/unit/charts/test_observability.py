"""What the chart ships for Prometheus and Grafana."""

import json
import subprocess
from pathlib import Path

import pytest
import yaml
from tests.unit.charts.rendering import (
    CHARTS,
    ROOT,
    Manifest,
    of_kind,
    only,
    refusal,
    rendered,
)

from queue_operator.metrics.registry import WAIT

CHART = "queue-operator"
WITH_RULES = "--api-versions=monitoring.coreos.com/v1/PrometheusRule"
DATABASE: Manifest = {"database": {"existingSecret": "given"}}
BOARDS = ["overview", "workers", "operator-database"]


def values(**metrics: Manifest) -> Manifest:
    return {**DATABASE, "metrics": metrics}


def test_nothing_is_made_unless_asked_for() -> None:
    made = rendered(CHART, DATABASE, WITH_RULES)
    assert of_kind(made, "PrometheusRule") == []
    assert of_kind(made, "ConfigMap") == []


def test_rules_need_the_kind_in_the_cluster() -> None:
    made = rendered(CHART, values(prometheusRule={"enabled": True}))
    assert of_kind(made, "PrometheusRule") == []


def test_the_rules_are_those_of_the_plain_file() -> None:
    asked = values(prometheusRule={"enabled": True, "labels": {"release": "monitoring"}})
    rule = only(rendered(CHART, asked, WITH_RULES), "PrometheusRule")
    assert rule["metadata"]["labels"]["release"] == "monitoring"
    plain = (ROOT / "docs" / "reference" / "prometheus-rules.yaml").read_text()
    assert rule["spec"] == yaml.safe_load(plain)


def test_rules_are_of_one_release_with_its_thresholds(tmp_path: Path) -> None:
    chosen = {
        "enabled": True,
        "runbookUrl": "https://wiki.example/queue",
        "thresholds": {"startSeconds": 300, "startObjective": 0.995, "deadRows": 50000000},
    }
    made = rendered(CHART, values(prometheusRule=chosen), WITH_RULES, release="night")
    rule = only(made, "PrometheusRule")
    text = yaml.safe_dump(rule["spec"], width=10**6)
    assert "@" not in text
    assert 'job="night-queue-operator"' in text
    assert 'job="queue-operator"' not in text
    for part in ('le=~"300([.]0)?"', "(1 - 0.995)", "waited longer than 300 s"):
        assert part in text
    assert "https://wiki.example/queue#queueoperatorabsent" in text
    file = tmp_path / "rules.yaml"
    file.write_text(text)
    subprocess.run(["promtool", "check", "rules", str(file)], check=True, capture_output=True)
    rows = [
        one["expr"]
        for group in rule["spec"]["groups"]
        for one in group["rules"]
        if one.get("alert") == "QueueOperatorDeadRows"
    ]
    assert rows[0].endswith("> 50000000") or rows[0].endswith("> 5e+07")


@pytest.mark.parametrize(
    ("threshold", "value"),
    [("startSeconds", 61), ("startObjective", 1), ("deadLetters", -1), ("unknown", 1)],
)
def test_a_threshold_that_cannot_be_is_refused_by_name(threshold: str, value: float) -> None:
    asked = values(prometheusRule={"enabled": True, "thresholds": {threshold: value}})
    assert threshold in refusal(CHART, asked)


def test_the_promise_to_start_in_time_has_a_bucket_for_each_choice() -> None:
    schema = json.loads((CHARTS / CHART / "values.schema.json").read_text())
    rule = schema["properties"]["metrics"]["properties"]["prometheusRule"]["properties"]
    choices = rule["thresholds"]["properties"]["startSeconds"]["enum"]
    assert set(choices) <= set(WAIT.buckets)


def test_dashboards_are_config_maps_that_grafana_finds() -> None:
    asked = values(dashboards={"enabled": True, "annotations": {"grafana_folder": "Queues"}})
    maps = of_kind(rendered(CHART, asked), "ConfigMap")
    assert len(maps) == len(BOARDS)
    for one in maps:
        assert one["metadata"]["labels"]["grafana_dashboard"] == "1"
        assert one["metadata"]["annotations"] == {"grafana_folder": "Queues"}
        ((name, text),) = one["data"].items()
        file = CHARTS / CHART / "files" / "dashboards" / name
        assert json.loads(text) == json.loads(file.read_text())
        assert one["metadata"]["name"] == f"queue-operator-dashboard-{file.stem}"
    assert {
        one["metadata"]["name"].removeprefix("queue-operator-dashboard-") for one in maps
    } == set(BOARDS)
