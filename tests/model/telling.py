"""Answers in words that are the same for all stores, and where two of them differ."""

from collections.abc import Iterator, Mapping, Set
from dataclasses import fields, is_dataclass
from datetime import datetime
from itertools import zip_longest
from typing import Any, Final

from tests.model.sides import Side

from queue_operator.domain.errors import QueueError

# Texts for people, which every store words for itself.
_UNTOLD: Final = {"reason", "args"}


def tell(value: Any, side: Side) -> Any:
    """`value` as plain data without clocks and secrets."""
    match value:
        case datetime():
            return side.when(value)
        case QueueError():
            told = {k: v for k, v in vars(value).items() if k not in _UNTOLD}
            return {"error": type(value).__name__, "code": value.code, **told}
        case Mapping():
            return {key: tell(one, side) for key, one in value.items()}
        case Set():
            return sorted(value)
    if is_dataclass(value) and not isinstance(value, type):
        return _record({f.name: getattr(value, f.name) for f in fields(value)}, side)
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return _record(value._asdict(), side)
    if isinstance(value, list | tuple):
        return [tell(one, side) for one in value]
    return value


def _record(value: Mapping[str, Any], side: Side) -> dict[str, Any]:
    told = {key: tell(one, side) for key, one in value.items()}
    if isinstance(token := told.get("token"), str):
        told["token"] = side.token_name(token)
    return told


def differences(ours: Any, theirs: Any, path: str = "") -> Iterator[str]:
    """Where two told values differ, as `path: ours / theirs`."""
    match ours, theirs:
        case dict(), dict():
            for key in [*ours, *(key for key in theirs if key not in ours)]:
                lacking = "is missing"
                yield from differences(
                    ours.get(key, lacking), theirs.get(key, lacking), f"{path}.{key}"
                )
        case list(), list():
            if len(ours) != len(theirs):
                yield f"{path} has {len(ours)} / {len(theirs)} entries"
            for place, (one, other) in enumerate(zip_longest(ours, theirs)):
                yield from differences(one, other, f"{path}[{place}]")
        case _:
            if ours != theirs:
                yield f"{path}: {ours!r} / {theirs!r}"
