"""Durations as people write them: one grammar, for every door that takes text.

    seconds    90, 0.5, 1e3
    units      1h30m, 250ms, 1.5h, 2d   (w d h m s ms us ns; Go's form, with days and weeks)
    ISO 8601   PT5M, P1DT12H, P2W       (weeks, days, hours, minutes, seconds in this order, each
                                         at most once; a fraction in the last, after . or ,)

Years and months are refused: they have no fixed length. Everything is rounded up to whole
microseconds, so that what is a little over 0, or over a bound, stays that.
"""

import math
import re
from collections.abc import Iterable
from datetime import timedelta
from decimal import Decimal
from typing import Final

MAX_CHARACTERS: Final = 64
"""A longer text is a mistake."""
FORMS: Final = 'seconds (90), units ("1h30m", "250ms") or ISO 8601 ("PT1H30M")'
"""What may be written, for messages."""

_WHOLE: Final = r"[0-9]+"
_FRACTION: Final = r"[0-9]+([.,][0-9]+)?"
_SECONDS: Final = r"[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]{1,3})?"
_UNITS: Final = r"([0-9]+(\.[0-9]+)?(ns|us|ms|s|m|h|d|w))+"
# By the unit that comes last, which alone may have a fraction.
_DAYS: Final = rf"({_WHOLE}W)?({_WHOLE}D)?"
_TIME: Final = rf"({_FRACTION}H|({_WHOLE}H)?({_FRACTION}M|({_WHOLE}M)?{_FRACTION}S))"
_ISO: Final = rf"P({_FRACTION}W|({_WHOLE}W)?{_FRACTION}D|{_DAYS}T{_TIME})"
PATTERN: Final = f"^({_SECONDS}|{_UNITS}|{_ISO})$"
"""The whole grammar, in the syntax that Python, RE2 and JSON Schema share."""

_GRAMMAR: Final = re.compile(PATTERN)
_PART: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)([a-z]+)")
_NEGATIVE: Final = re.compile(r"-\s*[P\d.]")
_CALENDAR: Final = re.compile(r"P([0-9.,]+[YM]|[0-9.,]+[WD])*[0-9.,]+[YM]")

_FOREVER_US: Final = 10**20
"""Beyond every bound, and yet a number that a float can hold."""
_SECOND: Final = Decimal(1_000_000)
_DAY: Final = 86_400 * _SECOND
_UNIT_US: Final = {
    "ns": Decimal("0.001"),
    "us": Decimal(1),
    "ms": Decimal(1000),
    "s": _SECOND,
    "m": 60 * _SECOND,
    "h": 3600 * _SECOND,
    "d": _DAY,
    "w": 7 * _DAY,
}


class NotADuration(ValueError):
    """The text, or the value, says no length of time."""


class NegativeDuration(NotADuration):
    """It would be one, but for its sign."""


def microseconds_of(value: object) -> int:
    """Of seconds, a timedelta, or text of the grammar. Raises NotADuration."""
    match value:
        case timedelta():
            us = value // timedelta(microseconds=1)
        case str():
            us = math.ceil(_parsed(value))
        case float() if math.isfinite(value):
            us = math.ceil(Decimal(str(value)) * _SECOND)
        case int() if not isinstance(value, bool):
            us = value * 1_000_000
        case _:
            raise NotADuration(f"must be a duration: {FORMS}")
    if us < 0:
        raise NegativeDuration("must not be negative")
    return min(us, _FOREVER_US)


def seconds_of(value: object) -> float:
    """As `microseconds_of`, in seconds."""
    return microseconds_of(value) / 1_000_000


def _parsed(text: str) -> Decimal:
    if _NEGATIVE.match(text):
        raise NegativeDuration("must not be negative")
    if len(text) > MAX_CHARACTERS:
        raise NotADuration(f"has {len(text)} characters; a duration has at most {MAX_CHARACTERS}")
    if _CALENDAR.match(text):
        raise NotADuration(
            f"{text!r} has years or months, which have no fixed length: "
            "write P30D for thirty days, PT1M for a minute"
        )
    if not _GRAMMAR.fullmatch(text):
        raise NotADuration(f"{text!r} is no duration: write {FORMS}")
    if text.startswith("P"):
        return _iso(text)
    if text[-1].isdigit():
        return Decimal(text) * _SECOND
    return _sum(_PART.findall(text))


def _iso(text: str) -> Decimal:
    days, _, time = text.lower().replace(",", ".").partition("t")
    return _sum(_PART.findall(days)) + _sum(_PART.findall(time))


def _sum(parts: Iterable[tuple[str, str]]) -> Decimal:
    return sum((Decimal(number) * _UNIT_US[unit] for number, unit in parts), Decimal(0))


def iso_text(value: timedelta) -> str:
    """As `PT1H30M`. Days are its largest unit: whatever reads it can tell how long they are."""
    whole_us = value // timedelta(microseconds=1)
    sign, us = ("-" if whole_us < 0 else ""), abs(whole_us)
    days, us = divmod(us, int(_DAY))
    hours, us = divmod(us, 3_600_000_000)
    minutes, us = divmod(us, 60_000_000)
    seconds, us = divmod(us, 1_000_000)
    fraction = f".{us:06}".rstrip("0") if us else ""
    time = "".join(f"{n}{unit}" for n, unit in ((hours, "H"), (minutes, "M")) if n)
    if seconds or us or not (days or time):
        time += f"{seconds}{fraction}S"
    return f"{sign}P{f'{days}D' if days else ''}{f'T{time}' if time else ''}"
