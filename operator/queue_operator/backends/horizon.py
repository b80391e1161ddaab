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

    def sees(self, xid: int) -> bool:
        """Whether what that transaction committed is seen."""
        return xid < self.end_xid and xid not in self.open_xids

    def covers(self, other: "Horizon") -> bool:
        """Whether it sees all that `other` sees."""
        beyond = max(other.end_xid - self.end_xid, 0)
        return sum(xid >= self.end_xid for xid in other.open_xids) == beyond and not any(
            map(other.sees, self.open_xids)
        )

    def meet(self, other: "Horizon") -> "Horizon":
        """What both of them see."""
        end = min(self.end_xid, other.end_xid)
        unseen = {*self.open_xids, *other.open_xids}
        return Horizon(end, tuple(sorted(xid for xid in unseen if xid < end)))

    def up_to(self, later: "Horizon", xid: int) -> "Horizon":
        """What it sees, and what `later` sees of transactions before `xid`."""
        end = max(self.end_xid, min(later.end_xid, xid))
        mine = (one for one in self.open_xids if one >= xid or not later.sees(one))
        theirs = (one for one in later.open_xids if self.end_xid <= one < end)
        return Horizon(end, (*mine, *theirs))
