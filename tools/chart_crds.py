"""What the charts carry of things that are defined elsewhere.

Helm reads only files inside a chart, so the custom resource definitions are copied into it,
and the part of its values' schema that mirrors the server's settings is written from them. The
default values are copied to where templates can read them.
"""

import json
from pathlib import Path
from typing import Any

import yaml

from manifests import manifests
from queue_operator.settings import Settings

ROOT = Path(__file__).resolve().parent.parent
CHART = Path("charts/queue-operator")
WORKER_CHART = Path("charts/queue-worker")
_DEFAULTS = """\
# Generated from values.yaml by `make generate`: what the templates take where the values of an
# installation lack something.
"""

# Settings that the chart gives a value of its own, or that its manifests rely on.
NOT_SETTINGS = frozenset(
    {
        *(("database", name) for name in ("dsn", "pooler", "listen_dsn")),
        ("controller", "enabled"),
        ("controller", "namespaces"),
        *((door, field) for door in ("rest", "grpc", "metrics") for field in ("host", "port")),
        *(("grpc", name) for name in ("certificate_file", "key_file", "client_ca_file")),
        *(("webhooks", name) for name in ("enabled", "allow", "secrets_dir")),
        *(("tracing", name) for name in ("endpoint", "sample_ratio")),
        *(("auth", name) for name in ("mode", "audience", "tokens", "tokens_file")),
    }
)
SECTIONS_APART = frozenset({"health"})


def copies() -> dict[Path, str]:
    """The text of each generated file of the chart by its path in the repository."""
    wanted = {CHART / "files" / path: kept(text) for path, text in manifests().items()}
    schema = CHART / "values.schema.json"
    wanted[schema] = with_settings((ROOT / schema).read_text())
    for chart in (CHART, WORKER_CHART):
        # A template cannot read its chart's values.yaml, only what an installation made of it.
        values = (ROOT / chart / "values.yaml").read_text()
        wanted[chart / "files" / "defaults.yaml"] = _DEFAULTS + values
    return wanted


def kept(text: str) -> str:
    """The manifests in it, each annotated so that uninstalling the release leaves it there.

    Deleting a custom resource definition deletes every resource of its kind.
    """
    documents = [document for document in yaml.safe_load_all(text) if document]
    for document in documents:
        annotations = document["metadata"].setdefault("annotations", {})
        annotations["helm.sh/resource-policy"] = "keep"
    header = "# Generated from crds/ by `make generate`.\n"
    return header + yaml.safe_dump_all(documents, sort_keys=False, width=100, allow_unicode=True)


def with_settings(schema: str) -> str:
    """The schema of the values, with `settings` as the server defines them now."""
    values: dict[str, Any] = json.loads(schema)
    values["definitions"]["settings"] = _settings_schema()
    return json.dumps(values, indent=2, ensure_ascii=False) + "\n"


def _settings_schema() -> dict[str, Any]:
    tree = Settings.model_json_schema()
    models = tree["$defs"]
    sections = {
        name: _section_schema(name, _inlined(reference, models))
        for name, reference in tree["properties"].items()
        if name not in SECTIONS_APART and "$ref" in reference
    }
    return _closed({name: section for name, section in sections.items() if section["properties"]})


def _section_schema(section: str, model: dict[str, Any]) -> dict[str, Any]:
    fields = {
        name: {key: value for key, value in field.items() if key != "title"}
        for name, field in model["properties"].items()
        if (section, name) not in NOT_SETTINGS
    }
    return _closed(fields)


def _inlined(schema: Any, models: dict[str, Any]) -> Any:
    """The schema with the models it refers to in place of their names."""
    if isinstance(schema, list):
        return [_inlined(one, models) for one in schema]
    if not isinstance(schema, dict):
        return schema
    model = models[schema["$ref"].rsplit("/", 1)[-1]] if "$ref" in schema else {}
    own = {key: value for key, value in schema.items() if key != "$ref"}
    return {key: _inlined(value, models) for key, value in {**model, **own}.items()}


def _closed(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "properties": properties}
