"""What the chart carries of the definitions and the settings is what the project defines."""

import importlib
import json
from types import ModuleType

import pytest
import yaml
from tests.unit.charts.rendering import CHARTS, ROOT

from queue_operator.settings import Settings

CRDS = ROOT / "crds"
COPIES = CHARTS / "queue-operator" / "files" / "crds"


@pytest.fixture
def chart_crds(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The generator, which finds its siblings beside it as when `make generate` runs it."""
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    return importlib.import_module("chart_crds")


def test_the_chart_is_up_to_date(chart_crds: ModuleType) -> None:
    stale = [
        path for path, text in chart_crds.copies().items() if (ROOT / path).read_text() != text
    ]
    assert stale == [], "run `make generate`"


def test_each_definition_is_in_the_chart_and_differs_by_the_annotation_only() -> None:
    names = {path.name for path in CRDS.glob("*.yaml")}
    assert names
    assert {path.name for path in COPIES.glob("*.yaml")} == names
    for name in names:
        originals = list(yaml.safe_load_all((CRDS / name).read_text()))
        for document in originals:
            annotations = document["metadata"].setdefault("annotations", {})
            annotations["helm.sh/resource-policy"] = "keep"
        assert list(yaml.safe_load_all((COPIES / name).read_text())) == originals


def test_existing_annotations_and_large_numbers_survive(chart_crds: ModuleType) -> None:
    manifest = "metadata: {annotations: {a: b}}\nmaximum: 9223372036854775807\n"
    kept = yaml.safe_load(chart_crds.kept(manifest))
    assert kept["metadata"]["annotations"] == {"a": "b", "helm.sh/resource-policy": "keep"}
    assert kept["maximum"] == 9223372036854775807


def test_every_setting_is_a_value_except_those_with_one_of_their_own(
    chart_crds: ModuleType,
) -> None:
    schema = json.loads((CHARTS / "queue-operator" / "values.schema.json").read_text())
    sections = schema["definitions"]["settings"]["properties"]
    offered = {(name, field) for name, part in sections.items() for field in part["properties"]}
    every = {
        (name, field)
        for name, value in Settings()
        if hasattr(type(value), "model_fields")
        for field in type(value).model_fields
    }
    apart = {pair for pair in every if pair[0] in chart_crds.SECTIONS_APART}
    assert offered == every - apart - chart_crds.NOT_SETTINGS
