"""Values as Grafana writes them, for the units that the dashboards use."""

import math
from collections.abc import Sequence
from typing import Final

_SHORT: Final = ((1e12, " Tri"), (1e9, " Bil"), (1e6, " Mil"), (1e3, " K"), (1, ""))
_BYTES: Final = ((2**40, " TiB"), (2**30, " GiB"), (2**20, " MiB"), (2**10, " KiB"), (1, " B"))
_TIME: Final = (
    (86400, " day"),
    (3600, " hour"),
    (60, " min"),
    (1, " s"),
    (1e-3, " ms"),
    (1e-6, " µs"),
)
_RATES: Final = {"ops": " ops/s", "reqps": " req/s", "wps": " wr/s", "opm": " ops/min"}


def written(value: float, unit: str, decimals: int | None = None) -> str:
    """The value with its unit."""
    if math.isnan(value):
        return "No data"
    if math.isinf(value):
        return "∞"
    if unit == "percentunit":
        return f"{_number(value * 100, decimals)}%"
    if unit == "bytes":
        return _scaled(value, _BYTES, decimals)
    if unit == "s":
        return _scaled(value, _TIME, decimals) if value else "0 s"
    return _scaled(value, _SHORT, decimals) + _RATES.get(unit, "")


def _scaled(value: float, scale: Sequence[tuple[float, str]], decimals: int | None) -> str:
    for size, name in scale:
        if abs(value) >= size:
            return _number(value / size, decimals) + name
    # Below the least size.
    size, name = scale[-1]
    return _number(value / size, decimals) + name


def _number(value: float, decimals: int | None) -> str:
    """Three digits that say something, unless told how many."""
    if decimals is not None:
        return f"{value:.{decimals}f}"
    magnitude = math.floor(math.log10(abs(value))) if value else 0
    places = max(0, min(4, 2 - magnitude))
    text = f"{value:.{places}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
