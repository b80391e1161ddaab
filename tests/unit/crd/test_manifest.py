"""The manifests against what Kubernetes demands of a structural schema and what we promise."""

from collections.abc import Iterator
from typing import Any

import pytest

from queue_operator.crd import manifest, names
from queue_operator.crd.v1alpha1 import QueueJobSpec
from queue_operator.domain.ordering import Priority
from queue_operator.domain.states import JobState
from queue_operator.domain.views import Phase

CRDS = [manifest.queue_job_crd(), manifest.queue_worker_crd()]
_NOT_STRUCTURAL = {
    *("$ref", "$defs", "title", "const", "exclusiveMinimum", "exclusiveMaximum"),
    *("ge", "gt", "le", "lt"),
}


def schema_of(crd: dict[str, Any]) -> dict[str, Any]:
    schema: dict[str, Any] = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return schema


def nodes(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from nodes(child, f"{path}.{name}")
    for keyword in ("items", "additionalProperties"):
        if isinstance(schema.get(keyword), dict):
            yield from nodes(schema[keyword], f"{path}[]")


@pytest.mark.parametrize("crd", CRDS, ids=lambda crd: str(crd["spec"]["names"]["kind"]))
def test_every_node_is_structural(crd: dict[str, Any]) -> None:
    for path, node in nodes(schema_of(crd)):
        untyped = "x-kubernetes-int-or-string" in node or (
            "x-kubernetes-preserve-unknown-fields" in node
        )
        assert ("type" in node) != untyped, path
        assert not _NOT_STRUCTURAL & node.keys(), path
        assert node.get("additionalProperties") is not False, path


@pytest.mark.parametrize("crd", CRDS, ids=lambda crd: str(crd["spec"]["names"]["kind"]))
def test_every_list_says_how_it_merges(crd: dict[str, Any]) -> None:
    for path, node in nodes(schema_of(crd)):
        if node.get("type") == "array":
            assert node["x-kubernetes-list-type"] in ("atomic", "set", "map"), path


@pytest.mark.parametrize("crd", CRDS, ids=lambda crd: str(crd["spec"]["names"]["kind"]))
def test_every_field_is_described(crd: dict[str, Any]) -> None:
    properties = schema_of(crd)["properties"]
    for part in ("spec", "status"):
        for path, node in nodes(properties[part], part):
            assert path.endswith("[]") or node.get("description"), path


def test_enums_are_the_domains() -> None:
    properties = schema_of(CRDS[0])["properties"]
    assert properties["status"]["properties"]["state"]["enum"] == [s.value for s in JobState]
    phases = [*(phase.value for phase in Phase), "REJECTED"]
    assert properties["status"]["properties"]["phase"]["enum"] == phases
    assert properties["spec"]["properties"]["priority"]["enum"] == [p.value for p in Priority]


def test_only_type_is_required() -> None:
    schema = schema_of(CRDS[0])
    assert schema["required"] == ["spec"]
    assert schema["properties"]["spec"]["required"] == ["type"]


def test_every_field_but_what_may_change_and_payload_is_immutable_by_rule() -> None:
    spec = schema_of(CRDS[0])["properties"]["spec"]
    rules = {rule["message"].split()[0] for rule in spec["x-kubernetes-validations"]}
    fields = {f"spec.{field.alias or name}" for name, field in QueueJobSpec.model_fields.items()}
    assert fields - rules == {"spec.payload", "spec.priority", "spec.suspend"}


def test_first_sight_is_a_default_of_the_whole_status() -> None:
    status = schema_of(CRDS[0])["properties"]["status"]
    (condition,) = status["default"]["conditions"]
    assert (condition["type"], condition["status"]) == ("Accepted", "Unknown")


@pytest.mark.parametrize(
    ("crd", "short", "columns", "wide"),
    [
        (
            CRDS[0],
            "qj",
            ["Phase", "Type", "Attempts", "Reason", "Age"],
            ["Priority", "Worker", "Progress", "State"],
        ),
        (
            CRDS[1],
            "qw",
            ["Ready", "Session", "Slots", "Busy", "Types", "Tags", "Age"],
            ["Version", "Host", "Heartbeat"],
        ),
    ],
    ids=["QueueJob", "QueueWorker"],
)
def test_names_and_columns(
    crd: dict[str, Any], short: str, columns: list[str], wide: list[str]
) -> None:
    spelled = crd["spec"]["names"]
    assert spelled["shortNames"] == [short]
    assert spelled["categories"] == [names.CATEGORY]
    listed = crd["spec"]["versions"][0]["additionalPrinterColumns"]
    assert [c["name"] for c in listed if "priority" not in c] == columns
    assert [c["name"] for c in listed if c.get("priority") == 1] == wide


def test_selectable_fields_exist_in_the_schema() -> None:
    version = CRDS[0]["spec"]["versions"][0]
    paths = {path for path, _ in nodes(version["schema"]["openAPIV3Schema"])}
    selectable = {field["jsonPath"] for field in version["selectableFields"]}
    assert selectable <= paths
    assert names.UNFINISHED_SELECTOR.partition("!=")[0] in {path[1:] for path in selectable}


def test_status_is_a_subresource() -> None:
    for crd in CRDS:
        assert crd["spec"]["versions"][0]["subresources"] == {"status": {}}
