"""What a sweep looks at: `lease_check` names what is due, and nothing else is read. A sweep reads
each of its rows once, however many dead ones there are.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import psycopg
from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from queue_operator.backends.sql import load

_LOCK: Final = load(__package__, "sweep_lock")
_BEGIN: Final = load(__package__, "sweep_begin")
_IDLE: Final = load(__package__, "sweep_idle", begin=_BEGIN)
_TAKE: Final = load(__package__, "sweep_take")
_FIND: Final = load(__package__, "sweep_find")
_RENEWED: Final = load(__package__, "sweep_renewed")
_EXHAUSTED: Final = load(__package__, "sweep_exhausted")
_RETURN: Final = load(__package__, "sweep_return")
_END: Final = load(__package__, "sweep_end")
# Any number will do, as long as every replica takes the same.
SWEEPERS_LOCK: Final = 7_164_004
_MAX_ROWS: Final = 5000
_MAX_BYTES: Final = 800_000
"""A hundred thousand leases."""
_LATER: Final = {"HELD": timedelta(hours=1), "PROGRESS": timedelta(minutes=5)}
"""What is only looked at lest its row stays when the lease is gone."""
LEASE_BITS: Final = 16
MOST_GIVEN_UP: Final = 1000
"""Jobs without an attempt left, of a page; a sweep that finds as many goes on with another."""


class OthersSweep(Exception):
    """Another sweeper is at it, and has been for longer than this one waits."""


async def nothing_due(
    connection: AsyncConnection[TupleRow], *, ttl_s: float, cancel_timeout_s: float
) -> bool:
    """Whether there was nothing to do, which is noted as a sweep; by one statement."""
    parameters = {"lock": SWEEPERS_LOCK, "ttl_s": ttl_s, "cancel_timeout_s": cancel_timeout_s}
    return (await connection.execute(_IDLE, parameters)).rowcount > 0


@dataclass(frozen=True, slots=True)
class Due:
    """Something to be done. `lease` is the number of a job and, in its last bits, a version;
    `number` is that of the row that named it last.
    """

    kind: str
    lease: int
    number: int

    @property
    def job_no(self) -> int:
        return self.lease >> LEASE_BITS


@dataclass(frozen=True, slots=True)
class Page:
    """What was due and has to be done, and whether there is more."""

    due: Sequence[Due]
    more: bool

    def leases(self, *kinds: str) -> list[int]:
        return [one.lease for one in self.due if one.kind in kinds]


@dataclass(slots=True, kw_only=True)
class Sweep:
    """One sweep, in a transaction of the only sweeper there is at that time."""

    connection: AsyncConnection[TupleRow]
    number: int
    now: datetime
    resumed_at: datetime | None
    ended_before: datetime | None
    marks: dict[str, datetime | None]
    starts: dict[str, datetime | None]
    seen: str | None
    deadline_before: datetime
    cancel_before: datetime

    @classmethod
    async def begin(
        cls,
        connection: AsyncConnection[TupleRow],
        *,
        ttl_s: float,
        cancel_timeout_s: float,
        patience_s: float,
    ) -> "Sweep":
        """Raises OthersSweep when another sweeper does not end within `patience_s`."""
        patience = f"{int(patience_s * 1000)}ms"
        try:
            await connection.execute(_LOCK, {"lock": SWEEPERS_LOCK, "patience": patience})
        except psycopg.errors.LockNotAvailable:
            raise OthersSweep from None
        parameters = {"ttl_s": ttl_s, "cancel_timeout_s": cancel_timeout_s}
        cursor = await connection.execute(_BEGIN, parameters)
        [
            (number, now, resumed_at, ended_before, kinds, marks, starts, *rest)
        ] = await cursor.fetchall()
        seen, deadline_before, cancel_before = rest
        return cls(
            connection=connection,
            number=number,
            now=now,
            resumed_at=resumed_at,
            ended_before=ended_before,
            marks=dict(zip(kinds, marks, strict=True)),
            starts=dict(zip(kinds, starts, strict=True)),
            seen=seen,
            deadline_before=deadline_before,
            cancel_before=cancel_before,
        )

    @property
    def untils(self) -> dict[str, datetime]:
        """Up to when each kind is looked at."""
        untils = {
            "DEADLINE": self.deadline_before,
            "CANCEL": self.cancel_before,
            "EXHAUST": self.now,
            **dict.fromkeys(_LATER, self.now),
        }
        leases = dict.fromkeys(("CLAIM", "RENEWAL"), self.ended_before)
        return untils | {kind: until for kind, until in leases.items() if until is not None}

    async def take(self) -> Page:
        """The next of what is due."""
        untils = self.untils
        parameters = {
            "kinds": list(untils),
            "marks": [self.starts.get(kind) for kind in untils],
            "untils": list(untils.values()),
            "seen": self.seen,
            "ended_before": self.ended_before,
            "cancel_before": self.cancel_before,
            "max_rows": _MAX_ROWS,
            "max_bytes": _MAX_BYTES,
        }
        cursor = await self.connection.execute(_TAKE, parameters)
        [(marks, more, self.seen, kinds, leases, numbers)] = await cursor.fetchall()
        self.starts |= zip(untils, marks, strict=True)
        self.marks |= zip(untils, marks, strict=True)
        return Page([Due(*one) for one in zip(kinds, leases, numbers, strict=True)], more)

    async def find(self, page: Page, limit: int) -> dict[int, tuple[str, str]]:
        """Leases that end now, locked: by job number the token and why. Others may have renewed
        some of the page until we had their lock: those are not among them.
        """
        leases = page.leases("CLAIM", "DEADLINE", "CANCEL")
        if not leases or limit <= 0:
            return {}
        parameters = {
            "leases": leases,
            "run_out": page.leases("CLAIM"),
            "deadline_before": self.deadline_before,
            "cancel_before": self.cancel_before,
            "max_rows": limit,
        }
        found = await (await self.connection.execute(_FIND, parameters)).fetchall()
        cursor = await self.connection.execute(_RENEWED, {"seen": self.seen})
        renewed = {lease for (lease,) in await cursor.fetchall()}
        return {
            lease >> LEASE_BITS: (token, why)
            for lease, token, why in found
            if why != "lease" or lease not in renewed
        }

    async def exhausted(self, page: Page, limit: int) -> list[int]:
        """The numbers of lost jobs without an attempt left, locked."""
        leases = page.leases("EXHAUST")
        if not leases:
            return []
        cursor = await self.connection.execute(_EXHAUSTED, {"leases": leases, "max_rows": limit})
        return [lease >> LEASE_BITS for (lease,) in await cursor.fetchall()]

    async def put_back(self, page: Page, done: Collection[int]) -> None:
        """All of a page but the jobs that were `done` is looked at again: by the next sweep, or
        where it only waits for the end of the job, later.
        """
        await self._put_back([one for one in page.due if one.job_no not in done])

    async def _put_back(self, left: Sequence[Due]) -> None:
        if not left:
            return
        untils = self.untils | {kind: self.now + after for kind, after in _LATER.items()}
        parameters = {
            "kinds": [one.kind for one in left],
            "leases": [one.lease for one in left],
            "numbers": [one.number for one in left],
            "look_ats": [untils[one.kind] for one in left],
        }
        await self.connection.execute(_RETURN, parameters)

    async def end(self) -> None:
        """Notes how far this sweep has got."""
        parameters = {
            "number": self.number,
            "resumed_at": self.resumed_at,
            "kinds": list(self.marks),
            "marks": list(self.marks.values()),
            "seen": self.seen,
            # What runs out was not looked at, so what came late is still to be found.
            "seen_now": self.ended_before is not None,
        }
        await self.connection.execute(_END, parameters)
