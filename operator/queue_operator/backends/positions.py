"""How far somebody has read the log of events, as a text that outlives the server."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Self

from queue_operator.backends.horizon import Horizon
from queue_operator.domain.errors import InvalidArgument

LAST_EVENT_ID: Final = "Last-Event-ID"
"""The header by which a position is given back."""
MOST_CHARACTERS: Final = 16_384
_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"
_NUMBER: Final = r"[0-9a-z]{1,13}"
_TEXT: Final = re.compile(
    rf"([0-9a-f]{{8}})\.({_NUMBER})\.({_NUMBER})\.((?:{_NUMBER}(?:-{_NUMBER})*)?)"
    rf"((?:\.{_NUMBER}-{_NUMBER}-{_NUMBER})*)"
)


Place = tuple[int, int]
"""Number of a row of the log, and which of its jobs, from 1."""


@dataclass(frozen=True, slots=True)
class Position:
    """All that `horizon` sees, and of the transactions in `partly` what comes up to a place.
    `store` tells the database from others, `highest` is the last number of the log then.
    """

    store: str
    highest: int
    horizon: Horizon
    partly: Mapping[int, Place] = field(default_factory=dict)

    def has(self, xid: int, place: Place) -> bool:
        """Whether that event was told."""
        if self.horizon.sees(xid):
            return True
        told = self.partly.get(xid)
        return told is not None and place <= told

    def after(self, xid: int, place: Place, later: Horizon) -> "Position":
        """Where whoever reads up to `later` in the order of transactions is, once told of that."""
        horizon = self.horizon.up_to(later, xid)
        partly = {one: told for one, told in self.partly.items() if not horizon.sees(one)}
        return Position(self.store, self.highest, horizon, {**partly, xid: place})

    def at(self, later: Horizon, highest: int) -> "Position":
        """Where it is once all is told that `later` sees, too."""
        horizon = self.horizon.up_to(later, later.end_xid)
        partly = {one: told for one, told in self.partly.items() if not horizon.sees(one)}
        return Position(self.store, highest, horizon, partly)

    def is_within(self, horizon: Horizon) -> bool:
        """Whether that sees all that was told here."""
        return horizon.covers(self.horizon) and all(map(horizon.sees, self.partly))

    def __str__(self) -> str:
        end = self.horizon.end_xid
        opened = "-".join(_short(end - xid) for xid in self.horizon.open_xids)
        partly = "".join(
            f".{_short(xid)}-{_short(seq)}-{_short(n)}" for xid, (seq, n) in self.partly.items()
        )
        return f"{self.store}.{_short(self.highest)}.{_short(end)}.{opened}{partly}"

    @classmethod
    def parse(cls, text: str, field: str = LAST_EVENT_ID) -> Self:
        """Raises InvalidArgument for what is none."""
        match = _TEXT.fullmatch(text) if len(text) <= MOST_CHARACTERS else None
        if match is None:
            raise InvalidArgument(field, "is no position that this server gave")
        store, highest, end, opened, partly = match.groups()
        end_xid = int(end, 36)
        open_xids = tuple(end_xid - int(one, 36) for one in opened.split("-") if one)
        places = (one.split("-") for one in partly.split(".") if one)
        told = {int(x, 36): (int(seq, 36), int(n, 36)) for x, seq, n in places}
        if end_xid >= 2**63 or any(xid < 0 for xid in open_xids):
            raise InvalidArgument(field, "is no position that this server gave")
        return cls(store, int(highest, 36), Horizon(end_xid, open_xids), told)


def _short(number: int) -> str:
    """In base 36."""
    digits = ""
    while True:
        number, digit = divmod(number, 36)
        digits = _DIGITS[digit] + digits
        if not number:
            return digits
