"""Values of an installation that an earlier chart made, which did not know all of today's."""

import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.unit.charts.rendering import (
    CHARTS,
    NAMESPACE,
    RELEASE,
    Manifest,
    containers,
    documents,
    helm,
    pod_spec,
)

SERVER: Manifest = {
    "database": {"host": "db", "password": "secret"},
    "auth": {"mode": "static", "tokens": {"ci": "token"}},
    "networkPolicy": {"enabled": True},
    "metrics": {"serviceMonitor": {"enabled": True}},
    "tls": {"existingSecret": "certificate", "clientCaSecret": "authorities"},
    "watchNamespaces": ["team-a"],
}
FALSE: Manifest = {
    **SERVER,
    "controller": {"enabled": False},
    "crds": {"install": False},
    "rbac": {"aggregate": False, "clusterRights": False, "clusterWide": False},
    "serviceAccount": {"create": False, "name": "mine"},
    "podDisruptionBudget": {"enabled": False},
    "networkPolicy": {"enabled": False},
    "topologySpreadConstraints": [],
}
# Without a number the chart leaves it to an autoscaler: it was there from the first chart on.
WORKER: Manifest = {"replicas": 2, "tls": {"caSecret": "ca"}, "networkPolicy": {"enabled": True}}
CASES = [("queue-operator", SERVER), ("queue-operator", FALSE), ("queue-worker", WORKER)]
Place = tuple[str, ...]


def leaves(values: Manifest, above: Place = ()) -> Iterator[Place]:
    for name, value in values.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, (*above, name))
        else:
            yield (*above, name)


def without(values: Manifest, missing: set[Place]) -> Manifest:
    """Whole maps are gone where nothing of them is left."""
    kept: dict[str, Any] = {}
    for path in leaves(values):
        if path in missing:
            continue
        place = kept
        for name in path[:-1]:
            place = place.setdefault(name, {})
        value = values
        for name in path:
            value = value[name]
        place[path[-1]] = value
    return kept


def manifests(chart: Path, values: Manifest) -> str:
    monitors = "--api-versions=monitoring.coreos.com/v1/ServiceMonitor"
    done = helm(
        "template", RELEASE, str(chart), f"--namespace={NAMESPACE}", monitors, values=values
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(("chart", "values"), CASES)
def test_whatever_the_values_lack_is_as_by_default(
    tmp_path: Path, chart: str, values: Manifest
) -> None:
    """All of it, then a draw of halves, which no two earlier charts need have alike."""
    earlier = tmp_path / chart
    shutil.copytree(CHARTS / chart, earlier)
    known = yaml.safe_load((earlier / "values.yaml").read_text())
    usual = manifests(CHARTS / chart, values)
    # What is Kubernetes' own is taken whole or not at all.
    whole = {"resources", "podSecurityContext", "strategy"}
    paths = sorted({path[:1] if path[0] in whole else path for path in leaves(known)})
    draw = random.Random(7)  # noqa: S311  (the same each time)
    for missing in [set(paths), *({p for p in paths if draw.random() < 0.5} for _ in range(8))]:
        gone = {path for path in leaves(known) if {path, path[:1]} & missing}
        (earlier / "values.yaml").write_text(yaml.safe_dump(without(known, gone)))
        assert manifests(earlier, values) == usual, sorted(gone)


@pytest.mark.parametrize(("chart", "values"), [CASES[0], CASES[2]])
def test_a_part_of_what_is_kubernetes_own_can_be_taken_away(chart: str, values: Manifest) -> None:
    text = manifests(CHARTS / chart, {**values, "resources": {"limits": None}})
    for container in containers(pod_spec(list(documents(text)))):
        assert set(container["resources"]) == {"requests"}


@pytest.mark.parametrize("chart", ["queue-operator", "queue-worker"])
def test_each_template_puts_in_what_is_lacking_before_it_reads_anything(chart: str) -> None:
    for template in (CHARTS / chart / "templates").iterdir():
        if template.name != "_helpers.tpl":
            first = template.read_text().partition("\n")[0]
            assert first == f'{{{{- include "{chart}.prepare" . -}}}}', template.name
