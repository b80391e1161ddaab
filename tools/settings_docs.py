"""Writes the reference of the settings from their tree."""

from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from queue_operator.settings import Settings

_HEAD = """\
# Settings

Read once, at start, from environment variables. Lists and maps are given as JSON. A faulty
value stops the start, and every fault is named at once. Names that end in `_s` are seconds,
in `_bytes` bytes.
"""


def documents() -> dict[Path, str]:
    """The generated file: path below the repository, content."""
    return {Path("docs/reference/settings.md"): _HEAD + "".join(_sections())}


def _sections() -> Iterator[str]:
    prefix = str(Settings.model_config.get("env_prefix", ""))
    top = {n: f for n, f in Settings.model_fields.items() if not _is_group(f)}
    if top:
        yield _table("General", "Of the process as a whole.", prefix, top)
    for name, field in Settings.model_fields.items():
        if isinstance(field.default, BaseModel):
            group = type(field.default)
            about = (group.__doc__ or "").strip()
            yield _table(name, about, f"{prefix}{name.upper()}__", dict(group.model_fields))


def _is_group(field: FieldInfo) -> bool:
    return isinstance(field.default, BaseModel)


def _table(title: str, about: str, prefix: str, fields: dict[str, FieldInfo]) -> str:
    head = f"\n## {title}\n\n{about}\n\n| variable | default | meaning |\n|---|---|---|\n"
    return head + "".join(_rows(prefix, fields))


def _rows(prefix: str, fields: Mapping[str, FieldInfo]) -> Iterator[str]:
    for name, field in fields.items():
        if isinstance(field.default, BaseModel):
            yield from _rows(f"{prefix}{name.upper()}__", type(field.default).model_fields)
        else:
            yield f"| `{prefix}{name.upper()}` | {_default(field)} | {field.description} |\n"


def _default(field: FieldInfo) -> str:
    value = field.get_default(call_default_factory=True, validated_data={})
    if isinstance(value, SecretStr):
        value = value.get_secret_value()
    if isinstance(value, Enum):
        value = value.value
    return f"`{value}`" if value or value == 0 else "empty"
