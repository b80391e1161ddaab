"""CustomResourceDefinitions out of the models: structural schemas, columns, CEL rules."""

from typing import Any, Final

from pydantic import BaseModel

from queue_operator.crd.names import (
    CATEGORY,
    GROUP,
    QUEUE_JOB,
    QUEUE_WORKER,
    VERSION,
    ResourceNames,
)
from queue_operator.crd.v1alpha1 import (
    MAX_TAG,
    ConditionStatus,
    ConditionType,
    QueueJobSpec,
    QueueJobStatus,
    QueueWorkerSpec,
    QueueWorkerStatus,
)
from queue_operator.domain.ordering import Priority
from queue_operator.domain.retry import BackoffStrategy

Schema = dict[str, Any]

MUTABLE_FIELDS: Final = frozenset({"cancel", "priority", "suspend"})
POLICED_FIELDS: Final = frozenset({"payload"})
"""Immutable too, but a rule in the CRD cannot see it: the admission policy does."""

TRANSITION_MESSAGE: Final = "status.transition must not go down: a newer status is stored"

_CUSTOM: Final = BackoffStrategy.CUSTOM.value
_DROPPED: Final = frozenset({"title", "default", "$defs"})

_FIRST_SIGHT: Final[Schema] = {
    "conditions": [
        {
            "type": ConditionType.ACCEPTED.value,
            "status": ConditionStatus.UNKNOWN.value,
            "reason": "Pending",
            "message": "Waiting for the operator",
            "lastTransitionTime": "1970-01-01T00:00:00Z",
        }
    ]
}
"""Without it tools think that an object nobody has looked at is ready."""

_SLOW: Final = "Written every ten seconds at most; the metrics have it as it is."


def structural(model: type[BaseModel]) -> Schema:
    """The model's schema as the API server wants it: no references, no nulls, no titles."""
    document = model.model_json_schema(by_alias=True)
    definitions: Schema = document.get("$defs", {})
    schema = _inline(document, definitions)
    assert isinstance(schema, dict)  # noqa: S101  (a model's schema is an object)
    return schema


def _inline(node: Any, definitions: Schema) -> Any:
    if isinstance(node, list):
        return [_inline(item, definitions) for item in node]
    if not isinstance(node, dict):
        return node
    node = _without_null(node)
    if "$ref" in node:
        name = node["$ref"].rpartition("/")[2]
        node = {**definitions[name], **{k: v for k, v in node.items() if k != "$ref"}}
    kept = {k: v for k, v in node.items() if k not in _DROPPED}
    if kept.get("additionalProperties") is False:
        # A structural schema refuses unknown fields by itself.
        del kept["additionalProperties"]
    if "properties" in kept:
        properties = {k: _inline(v, definitions) for k, v in kept.pop("properties").items()}
        return {**{k: _inline(v, definitions) for k, v in kept.items()}, "properties": properties}
    return {k: _inline(v, definitions) for k, v in kept.items()}


def _without_null(node: Schema) -> Schema:
    """`X | None` is an optional X here: absent, never null."""
    options = node.get("anyOf", [])
    kept = [option for option in options if option != {"type": "null"}]
    if len(kept) == len(options):
        return node
    rest = {key: value for key, value in node.items() if key != "anyOf"}
    return {**kept[0], **rest} if len(kept) == 1 else {**rest, "anyOf": kept}


def _rule(rule: str, message: str, field: str = "") -> Schema:
    return {"rule": rule, "message": message} | ({"fieldPath": f".{field}"} if field else {})


def _immutable(field: str) -> Schema:
    """Covers setting and removing the field as well as changing it."""
    return _rule(
        f"has(self.{field}) == has(oldSelf.{field}) && "
        f"(!has(self.{field}) || self.{field} == oldSelf.{field})",
        f"spec.{field} cannot change after creation; create another QueueJob",
        field,
    )


def _queue_job_rules(spec: Schema) -> list[Schema]:
    fixed = [f for f in spec["properties"] if f not in MUTABLE_FIELDS | POLICED_FIELDS]
    return [
        *(_immutable(field) for field in fixed),
        _rule(
            "!has(oldSelf.cancel) || !oldSelf.cancel || (has(self.cancel) && self.cancel)",
            "spec.cancel cannot be taken back; create another QueueJob",
            "cancel",
        ),
        _rule(
            "!(has(self.delay) && has(self.scheduledAt))",
            "give either spec.delay or spec.scheduledAt, not both",
            "delay",
        ),
    ]


def queue_job_crd() -> Schema:
    spec, status = structural(QueueJobSpec), structural(QueueJobStatus)
    # Said by the API server, so that it is seen in the object and in its column.
    spec["properties"]["priority"]["default"] = Priority.NORMAL.value
    spec["properties"]["timeout"]["minimum"] = 1
    spec["properties"]["tags"]["x-kubernetes-validations"] = [
        _rule(
            f"self.all(k, k != '' && !k.contains('=') && size(k) + size(self[k]) < {MAX_TAG})",
            f"a tag key must not be empty or contain '=', and key=value must not be longer "
            f"than {MAX_TAG} characters",
        )
    ]
    spec["properties"]["backoff"]["x-kubernetes-validations"] = [
        _rule(
            f"(has(self.strategy) && self.strategy == '{_CUSTOM}') == has(self.delays)",
            f"backoff.delays belongs to the strategy {_CUSTOM}, which needs it",
        )
    ]
    spec["x-kubernetes-validations"] = _queue_job_rules(spec)
    status["default"] = _FIRST_SIGHT
    status["x-kubernetes-validations"] = [
        _rule(
            "!has(oldSelf.transition) || "
            "(has(self.transition) && self.transition >= oldSelf.transition)",
            TRANSITION_MESSAGE,
        )
    ]
    columns = [
        _column("Phase", ".status.phase"),
        _column("Type", ".spec.type"),
        _column("Attempts", ".status.attempt", "integer"),
        _column("Reason", ".status.reason"),
        _column("Priority", ".spec.priority", wide=True),
        _column("Worker", ".status.worker", wide=True),
        _column("Progress", ".status.progress.percent", "integer", wide=True),
        _column("State", ".status.state", wide=True),
        _column("Age", ".metadata.creationTimestamp", "date"),
    ]
    selectable = (
        ".spec.type",
        ".status.phase",
        ".status.reason",
        ".status.state",
        ".status.finished",
        ".status.gcBucket",
        ".status.worker",
    )
    return _crd(
        QUEUE_JOB,
        spec,
        status,
        columns,
        selectable,
        required=["spec"],
        description="A job for a worker's handler: the operator stores it, hands it to a worker, "
        "runs it again when it fails, and shows here how it is.",
    )


def queue_worker_crd() -> Schema:
    columns = [
        _column("Ready", f'.status.conditions[?(@.type=="{ConditionType.READY.value}")].status'),
        _column("Session", f'.status.conditions[?(@.type=="{ConditionType.READY.value}")].reason'),
        _column("Slots", ".status.slots", "integer"),
        _column("Busy", ".status.busy", "integer", told=_SLOW),
        _column("Types", ".status.typesText"),
        _column("Tags", ".status.tagsText"),
        _column("Version", ".status.version", wide=True),
        _column("Host", ".status.host", wide=True),
        _column("Heartbeat", ".status.heartbeatTime", "date", wide=True, told=_SLOW),
        _column("Age", ".metadata.creationTimestamp", "date"),
    ]
    status = structural(QueueWorkerStatus)
    return _crd(
        QUEUE_WORKER,
        structural(QueueWorkerSpec),
        status,
        columns,
        (),
        required=[],
        description="A worker that is connected. The operator makes and deletes these; edit the "
        "spec to give one another capacity or other tags, or to drain it.",
    )


def _column(
    name: str, path: str, kind: str = "string", *, wide: bool = False, told: str = ""
) -> Schema:
    column: Schema = {"name": name, "type": kind, "jsonPath": path}
    return column | ({"priority": 1} if wide else {}) | ({"description": told} if told else {})


def _crd(
    names: ResourceNames,
    spec: Schema,
    status: Schema,
    columns: list[Schema],
    selectable: tuple[str, ...],
    *,
    required: list[str],
    description: str,
) -> Schema:
    schema: Schema = {
        "type": "object",
        "description": description,
        "properties": {
            "apiVersion": {"type": "string", "description": f"{GROUP}/{VERSION}"},
            "kind": {"type": "string", "description": names.kind},
            "metadata": {"type": "object"},
            "spec": spec,
            "status": status,
        },
    }
    if required:
        schema["required"] = required
    version: Schema = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
        "additionalPrinterColumns": columns,
    }
    if selectable:
        version["selectableFields"] = [{"jsonPath": path} for path in selectable]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": names.crd},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": names.kind,
                "listKind": f"{names.kind}List",
                "plural": names.plural,
                "singular": names.singular,
                "shortNames": [names.short],
                "categories": [CATEGORY],
            },
            "versions": [version],
        },
    }
