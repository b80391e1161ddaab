"""Snapshots of the server, as numbers of transactions."""

import re
from dataclasses import dataclass
from typing import Any, Final, Self

_SNAPSHOT: Final = re.compile(r"(\d+):(\d+):([\d,]*)")


@dataclass(frozen=True, slots=True)
class Horizon:
    """A snapshot: from `end_xid` on it sees nothing, and before that all but `open_xids`."""

    end_xid: int
    open_xids: tuple[int, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads Postgres' own notation."""
        match = _SNAPSHOT.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} is no snapshot")
        _, end, listed = match.groups()
        return cls(int(end), tuple(int(xid) for xid in listed.split(",") if xid))

    def __str__(self) -> str:
        return f"{self.lowest}:{self.end_xid}:{','.join(map(str, self.open_xids))}"

    @property
    def lowest(self) -> int:
        """It sees all that was committed by transactions before this one."""
        return min(self.open_xids, default=self.end_xid)

    def until(self, now: "Horizon", above_seq: int) -> dict[str, Any]:
        """Parameters that select of the log what `now` sees and this does not, above a number."""
        return {
            "first_xid": str(self.end_xid),
            "open_xids": [str(xid) for xid in self.open_xids],
            "end_xid": str(now.end_xid),
            "upto": str(now),
            "above_seq": above_seq,
        }

    def before(self, end_xid: int) -> "Horizon":
        """What it sees of transactions before `end_xid`."""
        return Horizon(end_xid, tuple(xid for xid in self.open_xids if xid < end_xid))
