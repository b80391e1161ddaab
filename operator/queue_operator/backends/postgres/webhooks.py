"""The outbox of webhooks: messages that statements which end jobs have written."""

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from psycopg.rows import dict_row

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
from queue_operator.backends.postgres.sofar import Ended
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
_UNFOLD: Final = load(__package__, "webhook_unfold")
_DUE: Final = load(__package__, "webhook_due")
_CLAIM: Final = load(__package__, "webhook_claim", columns=_COLUMNS)
_SETTLE: Final = load(__package__, "webhook_settle")
_GET: Final = load(__package__, "webhook_get", columns=_COLUMNS)
_LIST: Final = load(__package__, "webhook_list", columns=_COLUMNS)
_OF_JOB: Final = load(__package__, "webhook_of_job", columns=_COLUMNS)
_REDELIVER: Final = load(__package__, "webhook_redeliver", chosen=_CHOSEN)
_PURGE: Final = load(__package__, "webhook_purge", chosen=_CHOSEN)
_COUNT: Final = load(__package__, "webhook_count")
_PRUNE: Final = load(__package__, "webhook_prune")
_FOLD: Final = load(__package__, "webhook_fold")
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


@on_one_loop
class WebhookStore(WebhooksBase):
    """The protocol `Webhooks`. Of several stores on one database each has its own turns."""

    def __init__(self, pool: Pool, limits: Limits, rng: Callable[[], float] = random.random):
        self._pool = pool
        self._limits = limits
        self._last = int(rng() * _NUMBERS) - _NUMBERS // 2
        self._pruned = (Ended(), Ended())

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
        async with borrowed(self._pool) as connection:
            await connection.execute(_DUE, {"limit": _DUE_AT_ONCE})
            async with connection.cursor(row_factory=dict_row) as cursor:
                await cursor.execute(_CLAIM, parameters)
                rows = await cursor.fetchall()
        turns = [(row["receiver"] - self._last - 1) % _NUMBERS for row in rows]
        if turns:
            behind = self._last + 1 + max(turns)
            self._last = (behind + _NUMBERS // 2) % _NUMBERS - _NUMBERS // 2
        return [_message(row) for row in rows]

    async def _unfold(self) -> None:
        """What statements that ended jobs have noted becomes messages before anybody looks."""
        for _ in range(_STEPS):
            async with borrowed(self._pool) as connection:
                [(is_folded,)] = await (await connection.execute(_FOLDED)).fetchall()
            if not is_folded:
                return
            await self._unfold_some()

    @again_when_undone
    async def _unfold_some(self) -> None:
        async with borrowed(self._pool, LONG_S) as connection:
            await connection.execute(_UNFOLD, {"limit": _UNFOLDED_AT_ONCE})

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
        wanted = {
            "delivered_s": delivered_s,
            "failed_s": failed_s,
            "delivered_after": self._pruned[0].after(self._pool.history),
            "failed_after": self._pruned[1].after(self._pool.history),
            "limit": limit,
        }
        async with borrowed(self._pool, patience_for(limit, 0)) as connection:
            [found] = await (await connection.execute(_PRUNE, wanted)).fetchall()
            await connection.execute(_FOLD, {"limit": _FOLDED_AT_ONCE})
        for count, until, ended in zip(found[:2], found[2:], self._pruned, strict=True):
            if count < limit:
                ended.pruned(until)
        return int(found[0] + found[1])

    def _lose(self) -> None:
        """Forgets how far this process has looked."""
        self._pruned = (Ended(), Ended())


def _message(row: Mapping[str, Any]) -> Message:
    return Message(
        id=id_of(row["number"], row["salt"]),
        state=MessageState(row["state"]),
        job_state=JobState(row["job_state"]),
        **{field: row[field] for field in _SHOWN},
    )
