"""Values that are wrong for an argument of a kind, whichever argument it is."""

from datetime import datetime, timedelta, timezone, tzinfo
from typing import Any, Final

INF: Final = float("inf")
NAN: Final = float("nan")
TEN_KB: Final = "x" * 10_240
UNSTORABLE: Final[tuple[Any, ...]] = (
    "",
    "a\x00b",
    "\ud800",
    "a\udfffb",
    "x" * 256,
    TEN_KB,
    None,
    7,
    b"x",
    ["x"],
)
"""For an id."""


class _Nowhere(tzinfo):
    """A time zone that does not say how far from UTC it is."""

    def utcoffset(self, at: datetime | None) -> None:
        return None

    def dst(self, at: datetime | None) -> None:
        return None

    def tzname(self, at: datetime | None) -> None:
        return None


_BEYOND: Final = datetime.max.replace(tzinfo=timezone(timedelta(hours=-14)))
TIMES: Final = (
    datetime(2024, 1, 1),
    datetime(2024, 1, 1, tzinfo=_Nowhere()),
    _BEYOND,
    "2024-01-01",
    7,
)

DELAYS: Final = (-1.0, INF, -INF, NAN, 1e12, 10**400, "1", True)
LIMITS: Final = (0, -1, 1.0, INF, NAN, True, "1", None, 10**9)
TTLS: Final = (0, -1, -0.5, NAN, INF, -INF, "1", True, 10**400, 1e12)
TAGS: Final = (
    "tag",
    None,
    [""],
    [7],
    ["a\x00"],
    [TEN_KB],
    {"a": "b"},
    [f"{n}" for n in range(33)],
)
IDS: Final = ("live", None, [""], [7], ["a\x00"], [TEN_KB], {"a": "b"})
TEXTS: Final = ("a\x00b", "\ud800", None, 7, b"x")
