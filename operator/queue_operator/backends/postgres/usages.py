"""What quotas are compared with, from counts and buckets that all replicas share."""

from collections.abc import Collection
from typing import Final

from queue_operator.backends.postgres.connection import Pool, borrowed
from queue_operator.backends.postgres.counts import TAIL, Counts
from queue_operator.backends.postgres.lanes import Lanes
from queue_operator.backends.protocol import Usage
from queue_operator.backends.sql import load
from queue_operator.backends.tokens import wait_for

_USAGE: Final = load(__package__, "quota_usage", tail=TAIL)
_TAKE: Final = load(__package__, "token_take")
_KEYS: Final = load(__package__, "key_find")


class UsageStore:
    """The protocol `Usages` but for the checks."""

    def __init__(self, pool: Pool, lanes: Lanes, counts: Counts) -> None:
        self._pool = pool
        self._lanes = lanes
        self._counts = counts

    async def usage_of(self, namespaces: Collection[str]) -> dict[str, Usage]:
        await self._counts.keep_up()
        async with borrowed(self._pool) as connection:
            cursor = await connection.execute(_USAGE, {"namespaces": list(namespaces)})
            rows = await cursor.fetchall()
        return {name: Usage(pending=waiting, running=running) for name, waiting, running in rows}

    async def take(self, bucket: str, amount: float, rate_per_s: float, burst: float) -> float:
        """How much was lacking for it, in seconds."""
        parameters = {"name": bucket, "amount": amount, "rate_per_s": rate_per_s, "burst": burst}
        async with borrowed(self._pool) as connection:
            answer = None
            while answer is None:
                # Whoever took at the same time had his turn, so there is an end to this.
                answer = await (await connection.execute(_TAKE, parameters)).fetchone()
        taken, lacking = answer
        return 0.0 if taken else wait_for(lacking, rate_per_s)

    async def taken_keys(self, keys: Collection[tuple[str, str]]) -> set[tuple[str, str]]:
        names = {namespace for namespace, _ in keys}
        ids = {namespace: await self._lanes.namespace_id(namespace) for namespace in names}
        # A namespace without an id holds nothing.
        asked = [(namespace, key) for namespace, key in keys if ids[namespace] is not None]
        if not asked:
            return set()
        parameters = {
            "namespaces": [ids[namespace] for namespace, _ in asked],
            "keys": [key for _, key in asked],
        }
        async with borrowed(self._pool) as connection:
            cursor = await connection.execute(_KEYS, parameters)
            return {asked[place - 1] for place, *_ in await cursor.fetchall()}
