"""Numbers of a payload that were rounded before the handler could see them."""

import json
import re
from collections.abc import Iterator, Mapping
from decimal import Decimal, InvalidOperation
from math import isfinite
from typing import Any, Final

from pydantic import TypeAdapter

_MAY_BE_ROUNDED: Final = re.compile(rb"[\d.]{16}|\d[eE]")
"""A float keeps any number of 15 digits."""


class _Rounded(float):
    """A number of a document that a float does not hold."""


def inexact(adapter: TypeAdapter[Any], value: object, payload: bytes) -> str | None:
    """Where a number was rounded that became a Decimal or an int of `value`, which the adapter
    has read from the payload; None where none was. Pydantic reads numbers as floats first.
    """
    if not _MAY_BE_ROUNDED.search(payload):
        return None
    # Whole numbers are not rounded, and may be longer than Python reads.
    document = json.loads(payload, parse_float=_number, parse_int=len)
    rounded = list(_rounded(document, ()))
    if not rounded:
        return None
    exact = set(_exact(adapter.dump_python(value, round_trip=True)))
    return next((place for place, number in rounded if _readings(number) & exact), None)


def _number(text: str) -> float:
    rounded = float(text)
    try:
        is_exact = isfinite(rounded) and Decimal(repr(rounded)) == Decimal(text)
    except InvalidOperation:
        is_exact = False
    return rounded if is_exact else _Rounded(rounded)


def _readings(number: float) -> set[Decimal]:
    """What is made of it: by its shortest text, or by its very value."""
    return {Decimal(repr(float(number))), Decimal(float(number))}


def _rounded(value: object, place: tuple[str, ...]) -> Iterator[tuple[str, float]]:
    if isinstance(value, _Rounded):
        yield ".".join(place) or "payload", value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _rounded(item, (*place, key))
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _rounded(item, (*place, str(number)))


def _exact(value: object) -> Iterator[Decimal]:
    """The numbers of a value that are no floats."""
    if isinstance(value, Decimal | int) and not isinstance(value, bool):
        yield Decimal(value)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _exact(key)
            yield from _exact(item)
    elif isinstance(value, list | tuple | set | frozenset):
        for item in value:
            yield from _exact(item)
