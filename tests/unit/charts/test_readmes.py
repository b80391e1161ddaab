"""The table of values in each chart's README names exactly the values there are."""

import re

import pytest
import yaml
from tests.unit.charts.rendering import CHARTS, Manifest

ROW = re.compile(r"^\| (`[^|]+`) \|", re.MULTILINE)


def paths(values: Manifest, prefix: str = "") -> set[str]:
    """The dotted path of each value; a map with nothing in it is a value."""
    found: set[str] = set()
    for name, value in values.items():
        path = f"{prefix}{name}"
        found |= paths(value, f"{path}.") if isinstance(value, dict) and value else {path}
    return found


@pytest.mark.parametrize(
    ("chart", "whole"),
    [("queue-operator", {"resources"}), ("queue-worker", {"resources", "strategy"})],
)
def test_the_table_names_every_value_once(chart: str, whole: set[str]) -> None:
    folder = CHARTS / chart
    rows = ROW.findall((folder / "README.md").read_text())
    named = [name.strip("`") for row in rows for name in row.split(", ")]
    values = yaml.safe_load((folder / "values.yaml").read_text())
    wanted = paths({name: value for name, value in values.items() if name not in whole}) | whole
    assert sorted(named) == sorted(wanted)


@pytest.mark.parametrize("chart", ["queue-operator", "queue-worker"])
def test_the_schema_knows_exactly_the_values_there_are(chart: str) -> None:
    folder = CHARTS / chart
    schema = yaml.safe_load((folder / "values.schema.json").read_text())
    values = yaml.safe_load((folder / "values.yaml").read_text())
    # What Helm itself hands to a chart that is a part of another one.
    assert set(schema["properties"]) == {*values, "global", "enabled"}
    for name, value in values.items():
        known = schema["properties"][name].get("properties")
        if isinstance(value, dict) and known:
            assert set(value) <= set(known)
