"""The outbox of webhooks: messages that statements which end jobs have written."""

import random
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from psycopg import AsyncConnection
from psycopg.rows import TupleRow, dict_row

from queue_operator.backends.postgres.arrays import Int8s, Texts, Uuids
from queue_operator.backends.postgres.connection import (
    LONG_S,
    Pool,
    again_when_undone,
    borrowed,
    patience_for,
)
from queue_operator.backends.postgres.one_loop import on_one_loop
from queue_operator.backends.postgres.receivers import number_of
from queue_operator.backends.postgres.sofar import EVER, SoFar
from queue_operator.backends.sql import load
from queue_operator.backends.webhook_ids import Named, id_of
from queue_operator.backends.webhooks import (
    Message,
    MessageSearch,
    MessageState,
    MessageStock,
    Told,
)
from queue_operator.backends.webhooks_base import MOST_LOOKED_AT, Chosen, Standing, WebhooksBase
from queue_operator.domain.situation import LATE_S
from queue_operator.domain.states import JobState
from queue_operator.domain.validation import Limits

_COLUMNS: Final = (
    "number, salt, receiver, namespace, job_id, type, url, job_state, finalized_at, attempt, "
    "state, tries, next_at, last_at, last_status, last_error, created_at, claim"
)
_CHOSEN: Final = load(__package__, "webhook_choose")
_FOLDED: Final = load(__package__, "webhook_folded")
_SOON: Final = load(__package__, "webhook_soon")
_UNFOLD: Final = load(__package__, "webhook_unfold")
_DUE: Final = load(__package__, "webhook_due", soon=_SOON)
_CLAIM: Final = load(__package__, "webhook_claim", columns=_COLUMNS, soon=_SOON)
_SETTLE: Final = load(__package__, "webhook_settle", soon=_SOON)
_GET: Final = load(__package__, "webhook_get", columns=_COLUMNS)
_LIST: Final = load(__package__, "webhook_list", columns=_COLUMNS)
_OF_JOB: Final = load(__package__, "webhook_of_job", columns=_COLUMNS)
_REDELIVER: Final = load(__package__, "webhook_redeliver", chosen=_CHOSEN)
_PURGE: Final = load(__package__, "webhook_purge", chosen=_CHOSEN)
_COUNT: Final = load(__package__, "webhook_count")
_PRUNE: Final = load(__package__, "webhook_prune")
_FOLD: Final = load(__package__, "webhook_fold")
_CATCH_UP: Final = load(__package__, "webhook_catch_up")
_STOCK: Final = load(__package__, "webhook_stock")
_STANDING: Final = load(__package__, "webhook_standing")
_DUE_AT_ONCE: Final = 1000
_FOLDED_AT_ONCE: Final = 5000
_UNFOLDED_AT_ONCE: Final = 10
_STEPS: Final = 20
_NUMBERS: Final = 2**64
_SHOWN: Final = tuple(
    field for field in Message.__dataclass_fields__ if field not in ("id", "state", "job_state")
)


_LATE_S: Final = 30.0
"""So much later than its transaction may last, what ended a job has surely committed."""
_ANEW_S: Final = 600.0
_DUE_LATE_S: Final = 10.0
"""So long what makes a message due later may take to commit."""
_DUE_ANEW_S: Final = 60.0
_PRUNE_LATE_S: Final = 10.0
_CAUGHT_UP: Final = 10
"""Rows of the log that one step looks at, each of up to thousands of jobs."""
_CATCH_UP_EVERY_S: Final = 60.0


@on_one_loop
class WebhookStore(WebhooksBase):
    """The protocol `Webhooks`. Of several stores on one database each has its own turns."""

    def __init__(
        self,
        pool: Pool,
        limits: Limits,
        rng: Callable[[], float] = random.random,
        monotonic: Callable[[], float] = time.monotonic,
    ):
        self._pool = pool
        self._limits = limits
        self._last = int(rng() * _NUMBERS) - _NUMBERS // 2
        late_s = max(LONG_S, pool.statement_timeout_s) + _LATE_S

        def so_far(late_s: float, anew_s: float) -> SoFar[datetime]:
            return SoFar(EVER, late_s=late_s, anew_s=anew_s, monotonic=monotonic)

        self._unfolded = SoFar[int](0, late_s=late_s, anew_s=_ANEW_S, monotonic=monotonic)
        self._monotonic = monotonic
        self._catch_up_at_s = float("-inf")
        self._due = so_far(_DUE_LATE_S, _DUE_ANEW_S)
        self._pruned = (so_far(_PRUNE_LATE_S, _ANEW_S), so_far(_PRUNE_LATE_S, _ANEW_S))

    def _lose(self) -> None:
        """Forgets how far this process has looked."""
        for place in (self._unfolded, self._due, *self._pruned):
            place.lose()
        self._catch_up_at_s = float("-inf")

    async def _claim(
        self, holder: str, limit: int, per_receiver: int, lease_s: float, full: frozenset[str]
    ) -> list[Message]:
        parameters = {
            "after": self._last,
            # One that is full is passed by in its turn.
            "visits": limit + len(full),
            "full": Int8s(map(number_of, full)),
            "per_receiver": per_receiver,
            "limit": limit,
            "holder": holder,
            "lease_s": lease_s,
        }
        await self._unfold()
        if self._monotonic() >= self._catch_up_at_s:
            await self._catch_up()
        async with borrowed(self._pool) as connection:
            await self._make_due(connection)
            async with connection.cursor(row_factory=dict_row) as cursor:
                await cursor.execute(_CLAIM, parameters)
                rows = await cursor.fetchall()
        turns = [(row["receiver"] - self._last - 1) % _NUMBERS for row in rows]
        if turns:
            behind = self._last + 1 + max(turns)
            self._last = (behind + _NUMBERS // 2) % _NUMBERS - _NUMBERS // 2
        return [_message(row) for row in rows]

    async def _make_due(self, connection: AsyncConnection[TupleRow]) -> None:
        wanted = {"limit": _DUE_AT_ONCE, "after": self._due.after(self._pool.history)}
        [(count, now, _)] = await (await connection.execute(_DUE, wanted)).fetchall()
        if count < _DUE_AT_ONCE:
            self._due.looked(now)

    async def _unfold(self) -> None:
        """What statements that ended jobs have noted becomes messages before anybody looks."""
        for _ in range(_STEPS):
            after = self._unfolded.after(self._pool.history)
            async with borrowed(self._pool) as connection:
                cursor = await connection.execute(_FOLDED, {"after": after})
                [(is_folded,)] = await cursor.fetchall()
            if not is_folded:
                return
            await self._unfold_some(after)

    async def _catch_up(self) -> None:
        """A step of telling what a replica of an older release has ended, which wrote no message:
        it may go on for as long as an upgrade takes. Where there is none, a look once a minute.
        """
        if await self._catch_up_some() < _CAUGHT_UP:
            self._catch_up_at_s = self._monotonic() + _CATCH_UP_EVERY_S
        await self._unfold()

    @again_when_undone
    async def _catch_up_some(self) -> int:
        async with borrowed(self._pool, LONG_S) as connection:
            cursor = await connection.execute(_CATCH_UP, {"limit": _CAUGHT_UP})
            [(looked_at,)] = await cursor.fetchall()
        return int(looked_at)

    @again_when_undone
    async def _unfold_some(self, after: int | str) -> None:
        wanted = {"after": after, "limit": _UNFOLDED_AT_ONCE}
        async with borrowed(self._pool, LONG_S) as connection:
            [(_, last)] = await (await connection.execute(_UNFOLD, wanted)).fetchall()
        if last is not None:
            self._unfolded.looked(last)

    @again_when_undone
    async def _settle(self, told: Mapping[Named, Told]) -> None:
        ones = told.values()
        parameters = {
            "numbers": Int8s(name.number for name in told),
            "salts": Uuids(name.salt.bytes for name in told),
            "claims": Int8s(one.claim for one in ones),
            "states": Texts(one.state.value for one in ones),
            "after_s": [float(one.after_s) for one in ones],
            "statuses": [one.status for one in ones],
            "errors": Texts(one.error for one in ones),
        }
        async with borrowed(self._pool) as connection:
            await connection.execute(_SETTLE, parameters)

    async def _get(self, name: Named, namespace: str) -> Message | None:
        wanted = {"number": name.number, "salt": name.salt, "namespace": namespace}
        found = await self._read(_GET, wanted)
        return found[0] if found else None

    async def _search(
        self, search: MessageSearch, states: Sequence[MessageState], before: int, limit: int
    ) -> Sequence[Message]:
        wanted = {
            "namespace": search.namespace,
            "job_id": search.job_id,
            "states": Texts(state.value for state in states),
            "before": before,
            "limit": limit,
        }
        return await self._read(_OF_JOB if search.job_id else _LIST, wanted)

    async def _read(self, statement: str, wanted: Mapping[str, Any]) -> list[Message]:
        await self._unfold()
        async with borrowed(self._pool) as connection, connection.cursor(row_factory=dict_row) as c:
            await c.execute(statement.encode(), wanted)
            return [_message(row) for row in await c.fetchall()]

    async def _redeliver(self, namespace: str, chosen: Chosen, limit: int) -> int:
        return await self._change(_REDELIVER, namespace, chosen, limit)

    async def _purge(self, namespace: str, chosen: Chosen, limit: int) -> int:
        await self._unfold()
        return await self._change(_PURGE, namespace, chosen, limit)

    async def _count(self, namespace: str, chosen: Chosen, limit: int) -> int:
        await self._unfold()
        return await self._change(_COUNT, namespace, chosen, limit)

    @again_when_undone
    async def _change(self, statement: str, namespace: str, chosen: Chosen, limit: int) -> int:
        states, names = chosen
        wanted = {
            "namespace": namespace,
            "states": Texts(state.value for state in states),
            "numbers": None if names is None else Int8s(name.number for name in names),
            "salts": None if names is None else Uuids(name.salt.bytes for name in names),
            "limit": limit,
        }
        async with borrowed(self._pool, patience_for(limit, 0)) as connection:
            [(count,)] = await (await connection.execute(statement.encode(), wanted)).fetchall()
        return int(count)

    async def _standing(self, namespace: str, type: str) -> Sequence[Standing]:
        # What nobody has unfolded yet was not tried either.
        wanted = {"namespace": namespace, "type": type, "lately_s": LATE_S, "limit": MOST_LOOKED_AT}
        async with borrowed(self._pool) as connection, connection.cursor(row_factory=dict_row) as c:
            await c.execute(_STANDING, wanted)
            return [Standing(**row) for row in await c.fetchall()]

    async def _stock(self) -> MessageStock:
        await self._unfold()
        async with borrowed(self._pool) as connection:
            rows = await (await connection.execute(_STOCK)).fetchall()
        [oldest_s] = [value for namespace, _, value in rows if not namespace]
        of = {
            state: {space: int(count) for space, one, count in rows if one == state}
            for state in (MessageState.PENDING, MessageState.FAILED)
        }
        return MessageStock(
            pending=of[MessageState.PENDING],
            failed=of[MessageState.FAILED],
            oldest_due_s=oldest_s,
        )

    @again_when_undone
    async def _prune(self, delivered_s: float, failed_s: float, limit: int) -> int:
        history = self._pool.history
        wanted = {
            "delivered_s": delivered_s,
            "failed_s": failed_s,
            "delivered_after": self._pruned[0].after(history),
            "failed_after": self._pruned[1].after(history),
            "limit": limit,
        }
        async with borrowed(self._pool, patience_for(limit, 0)) as connection:
            [found] = await (await connection.execute(_PRUNE, wanted)).fetchall()
            await connection.execute(_FOLD, {"limit": _FOLDED_AT_ONCE})
        for count, until, pruned in zip(found[:2], found[2:], self._pruned, strict=True):
            if count < limit:
                pruned.looked(until)
        return int(found[0] + found[1])


def _message(row: Mapping[str, Any]) -> Message:
    return Message(
        id=id_of(row["number"], row["salt"]),
        state=MessageState(row["state"]),
        job_state=JobState(row["job_state"]),
        **{field: row[field] for field in _SHOWN},
    )
