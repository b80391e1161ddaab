"""A store that counts what quotas ask of it, and jobs for it."""

from collections.abc import Callable, Collection
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from queue_operator.backends.memory import MemoryBackend, MemoryShelf
from queue_operator.backends.protocol import Usage
from queue_operator.domain.job import Job
from queue_operator.queue.service import QueueService

START = datetime(2026, 1, 1, tzinfo=UTC)

Limited = Callable[..., QueueService]
"""Makes a queue with a quota in the namespace `team`."""


class Counting(MemoryBackend):
    """Counts what quotas ask of it; its time is the clock's."""

    looks = 0
    takes = 0
    key_looks = 0
    asked_keys: Collection[tuple[str, str]] = ()

    @property
    def shelf(self) -> MemoryShelf:
        return self._own

    async def usage_of(self, namespaces: Collection[str]) -> dict[str, Usage]:
        self.looks += 1
        return await super().usage_of(namespaces)

    async def take_tokens(
        self, bucket: str, amount: float, *, rate_per_s: float, burst: float
    ) -> float:
        self.takes += 1
        return await super().take_tokens(bucket, amount, rate_per_s=rate_per_s, burst=burst)

    async def taken_keys(self, keys: Collection[tuple[str, str]]) -> Collection[tuple[str, str]]:
        self.key_looks += 1
        self.asked_keys = set(keys)
        return await super().taken_keys(keys)


_numbers = iter(range(10**9))


def jobs(count: int, namespace: str = "team", **fields: Any) -> list[Job]:
    return [
        Job(id=f"j{next(_numbers)}", type="t", namespace=namespace, **fields) for _ in range(count)
    ]


def keyed(*keys: str, **fields: Any) -> list[Job]:
    return [replace(job, idempotency_key=key) for key in keys for job in jobs(1, **fields)]
