"""How much a namespace may hold and submit: looked at before anything is stored, at every door."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from math import ceil
from typing import Final

from queue_operator.backends.protocol import Backend, Usages
from queue_operator.domain.clock import Clock
from queue_operator.domain.errors import QuotaExceeded
from queue_operator.domain.job import Demand, Job
from queue_operator.settings import Quota, QuotaSettings

FRESH_S: Final = 0.25
"""How long a count of the store is taken to hold, beside what this process adds to it."""
_AGAIN_S: Final = 0.02
"""Whoever is refused in a crowd need not have it counted anew."""
_AHEAD_S: Final = 0.1
"""Tokens for so long are fetched at once, so that not every call pays a statement."""
_KEPT_S: Final = 1.0
_PENDING_RETRY_S: Final = 1.0
"""Nobody knows when waiting jobs are taken."""


@dataclass(slots=True)
class _Waiting:
    """What waits in a namespace, as far as it is known here."""

    counted: int = 0
    counted_at_s: float = float("-inf")
    stored: int = 0
    """Since the count began."""
    storing: int = 0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def jobs(self) -> int:
        return self.counted + self.stored + self.storing


@dataclass(slots=True)
class _Purse:
    """Tokens that were fetched and not used yet."""

    left: float = 0.0
    until_s: float = float("-inf")
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class Quotas:
    """The quotas of all namespaces. Where there are none nothing is asked of the store."""

    def __init__(self, backend: Backend, settings: QuotaSettings, clock: Clock) -> None:
        self._usages = backend if isinstance(backend, Usages) else None
        self._settings = settings
        self._are_set = settings.is_set
        self._clock = clock
        self._waiting: defaultdict[str, _Waiting] = defaultdict(_Waiting)
        self._purses: defaultdict[str, _Purse] = defaultdict(_Purse)

    @asynccontextmanager
    async def admitting(
        self, jobs: Sequence[Job], *, whole: bool = True
    ) -> AsyncIterator[Mapping[int, QuotaExceeded]]:
        """Inside, the jobs are stored. Raises QuotaExceeded where they do not fit as a `whole`;
        else gives by place those that are not to be stored: of a namespace the first go before
        the others.
        """
        reserved = Counter[str]()
        stored = False
        try:
            refused = await self._refusals(jobs, whole, reserved) if self._are_set else {}
            for error in refused.values() if whole else ():
                raise error
            yield refused
            stored = True
        finally:
            for namespace, count in reserved.items():
                known = self._waiting[namespace]
                known.storing -= count
                known.stored += count * stored

    async def _refusals(
        self, jobs: Sequence[Job], whole: bool, reserved: Counter[str]
    ) -> dict[int, QuotaExceeded]:
        places: defaultdict[str, list[int]] = defaultdict(list)
        for n, job in enumerate(jobs):
            # What is no job the store refuses.
            if isinstance(job, Job):
                places[job.namespace].append(n)
        refused: dict[int, QuotaExceeded] = {}
        for namespace, mine in places.items():
            quota = self._settings.of(namespace)
            room, error = await self._fit(namespace, quota, len(mine), whole, reserved)
            if room:
                wanted = [jobs[n] for n in mine[:room]]
                paid, slow = await self._pay(namespace, quota, wanted, whole)
                if slow is not None:
                    given_up = min(room - paid, reserved[namespace])
                    self._waiting[namespace].storing -= given_up
                    reserved[namespace] -= given_up
                    room, error = paid, slow
            if error is not None:
                refused |= dict.fromkeys(mine[room:], error)
        return refused

    async def _fit(
        self, namespace: str, quota: Quota, jobs: int, whole: bool, reserved: Counter[str]
    ) -> tuple[int, QuotaExceeded | None]:
        """Room for how many of so many jobs there is, and why for no more. It is taken."""
        most = quota.pending_jobs
        if most is None or self._usages is None:
            return jobs, None
        known = self._waiting[namespace]
        async with known.lock:
            age_s = self._clock.monotonic() - known.counted_at_s
            full = known.jobs + jobs > most
            if age_s >= FRESH_S or (full and age_s >= _AGAIN_S):
                known.stored = 0
                known.counted = (await self._usages.usage_of([namespace]))[namespace].pending
                known.counted_at_s = self._clock.monotonic()
            held = known.jobs
            room = min(max(most - held, 0), jobs)
            if room < jobs and whole:
                room = 0
            known.storing += room
            reserved[namespace] += room
        short = QuotaExceeded("pending_jobs", held, most, _PENDING_RETRY_S)
        return room, short if room < jobs else None

    async def _pay(
        self, namespace: str, quota: Quota, jobs: Sequence[Job], whole: bool
    ) -> tuple[int, QuotaExceeded | None]:
        """For how many of the jobs, from the first on, there are tokens, and what is lacking."""
        paid, step = 0, len(jobs)
        lacking: QuotaExceeded | None = None
        while step:
            short = await self._afford(namespace, quota, jobs[paid : paid + step])
            if short is None:
                paid += step
                if lacking is None:
                    break
            lacking = lacking or short
            # Steps of which none fits are halved, so that a crowd takes what one of it could.
            step = 0 if whole else min(step // 2, len(jobs) - paid)
        return paid, lacking

    async def _afford(
        self, namespace: str, quota: Quota, jobs: Sequence[Job]
    ) -> QuotaExceeded | None:
        """Takes what the jobs cost, or says what is lacking."""
        size = sum(len(job.payload) for job in jobs if isinstance(job.payload, bytes))
        costs = (
            ("submissions_per_s", len(jobs), quota.submissions_per_s, quota.submissions_burst),
            ("payload_bytes_per_s", size, quota.payload_bytes_per_s, quota.payload_bytes_burst),
        )
        paid: list[tuple[str, int]] = []
        for limit, amount, rate_per_s, burst in costs:
            if rate_per_s is None or not amount:
                continue
            most, bucket = burst or max(rate_per_s, 1.0), f"{limit} {namespace}"
            wait_s = await self._take(bucket, amount, rate_per_s, most)
            if wait_s:
                for earlier, tokens in paid:
                    self._purses[earlier].left += tokens
                maximum = max(ceil(rate_per_s), 1)
                return QuotaExceeded(limit, max(amount, maximum), maximum, wait_s)
            paid.append((bucket, amount))
        return None

    async def _take(self, bucket: str, amount: float, rate_per_s: float, burst: float) -> float:
        usages, purse = self._usages, self._purses[bucket]
        if usages is None:
            return 0.0
        async with purse.lock:
            if self._clock.monotonic() >= purse.until_s:
                purse.left = 0.0
            if purse.left < amount:
                lacking = amount - purse.left
                ahead = min(rate_per_s * _AHEAD_S, burst * _AHEAD_S)
                terms = {"rate_per_s": rate_per_s, "burst": burst}
                wait_s = await usages.take_tokens(bucket, max(lacking, ahead), **terms)
                fetched = max(lacking, ahead)
                if wait_s and ahead > lacking:
                    wait_s, fetched = await usages.take_tokens(bucket, lacking, **terms), lacking
                if wait_s:
                    return wait_s
                purse.left += fetched
                purse.until_s = self._clock.monotonic() + _KEPT_S
            purse.left -= amount
        return 0.0

    async def within(self, demands: Sequence[Demand]) -> list[Demand]:
        """The demands, cut where a namespace may not run as many jobs."""
        limits = {
            name: most
            for name in {demand.namespace for demand in demands}
            if (most := self._settings.of(name).running_jobs) is not None
        }
        if self._usages is None or not limits:
            return list(demands)
        used = await self._usages.usage_of(list(limits))
        room = {name: max(most - used[name].running, 0) for name, most in limits.items()}
        return _cut(demands, room)


def _cut(demands: Sequence[Demand], room: Mapping[str, int]) -> list[Demand]:
    """One job for each demand in turn, until there is no room."""
    left = dict(room)
    given = [0 if demand.namespace in room else demand.limit for demand in demands]
    gated = [n for n, demand in enumerate(demands) if demand.namespace in room]
    while gated:
        asking = []
        for n in gated:
            demand = demands[n]
            if left[demand.namespace] and given[n] < demand.limit:
                left[demand.namespace] -= 1
                given[n] += 1
                asking.append(n)
        gated = asking
    return [replace(d, limit=given[n]) for n, d in enumerate(demands) if given[n]]
