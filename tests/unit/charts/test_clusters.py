"""What stricter clusters and other charts ask of both charts."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.unit.charts.rendering import (
    CHARTS,
    Manifest,
    containers,
    documents,
    helm,
    pod_spec,
    rendered,
)

DATABASE: Manifest = {"database": {"host": "db"}}
BOTH = [("queue-operator", DATABASE), ("queue-worker", {})]
DIGEST = f"sha256:{'0123456789abcdef' * 4}"
IDS = ("runAsUser", "runAsGroup", "fsGroup")


@pytest.mark.parametrize(("chart", "values"), BOTH)
def test_the_cluster_may_choose_who_runs_the_pods(chart: str, values: Manifest) -> None:
    values = {**values, "podSecurityContext": dict.fromkeys(IDS)}
    spec = pod_spec(rendered(chart, values))
    assert spec["securityContext"] == {
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }


@pytest.mark.parametrize(("chart", "values"), BOTH)
def test_each_id_may_be_another(chart: str, values: Manifest) -> None:
    values = {**values, "podSecurityContext": {"runAsUser": 1_000_680_000, "fsGroup": None}}
    context = pod_spec(rendered(chart, values))["securityContext"]
    ids = {name: context[name] for name in IDS if name in context}
    assert ids == {"runAsUser": 1_000_680_000, "runAsGroup": 65532}


@pytest.mark.parametrize(("chart", "values"), BOTH)
def test_an_image_may_be_pinned_by_its_digest(chart: str, values: Manifest) -> None:
    image = {"repository": "registry.example:5000/queue", "tag": "1.4.0", "digest": DIGEST}
    images = {c["image"] for c in containers(pod_spec(rendered(chart, {**values, "image": image})))}
    assert images == {f"registry.example:5000/queue@{DIGEST}"}


def parent(folder: Path, chart: str) -> Path:
    """A chart of somebody's that has ours as a part, switched by a condition."""
    version = yaml.safe_load((CHARTS / chart / "Chart.yaml").read_text())["version"]
    part = {"name": chart, "version": version, "condition": f"{chart}.enabled"}
    document = {"apiVersion": "v2", "name": "shop", "version": "1.0.0", "dependencies": [part]}
    made = folder / "shop"
    shutil.copytree(CHARTS / chart, made / "charts" / chart)
    (made / "Chart.yaml").write_text(yaml.safe_dump(document))
    return made


def kinds(chart: Path, values: Manifest) -> set[str]:
    done = helm("template", "shop", str(chart), values=values)
    assert done.returncode == 0, done.stderr
    return {manifest["kind"] for manifest in documents(done.stdout)}


@pytest.mark.parametrize(("chart", "values"), BOTH)
def test_a_part_of_another_chart_is_switched_by_its_condition(
    tmp_path: Path, chart: str, values: Manifest
) -> None:
    shop = parent(tmp_path, chart)
    given: dict[str, Any] = {"global": {"team": "shop"}}
    assert "Deployment" in kinds(shop, {**given, chart: {**values, "enabled": True}})
    assert kinds(shop, {**given, chart: {**values, "enabled": False}}) == set()
