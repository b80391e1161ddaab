"""How much a namespace may hold and submit: looked at before anything is stored, at every door."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from math import ceil
from typing import Final

from queue_operator.backends.protocol import Backend, Usages
from queue_operator.domain.clock import Clock
from queue_operator.domain.errors import (
    PENDING_JOBS,
    InvalidArgument,
    QuotaExceeded,
    Unavailable,
)
from queue_operator.domain.job import Demand, Job, Submitted
from queue_operator.domain.validation import DEFAULT_LIMITS, Limits, check_text
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


@dataclass(slots=True)
class Admission:
    """What may be stored. `refused` are by place those that may not; whoever stores the others
    tells how the store answered: what is `not_stored` anew costs nothing.
    """

    refused: dict[int, QuotaExceeded] = field(default_factory=dict)
    not_stored: set[int] = field(default_factory=set)
    charged: dict[str, list[int]] = field(default_factory=dict)
    """Places by namespace."""
    reserved: Counter[str] = field(default_factory=Counter)

    def charge(
        self, namespace: str, places: Sequence[int], room: int, error: QuotaExceeded | None
    ) -> None:
        """For so many of the places there is room."""
        self.charged[namespace] = list(places[:room])
        if error is not None:
            self.refused |= dict.fromkeys(places[room:], error)

    def answered(self, answers: Sequence[Submitted]) -> None:
        """The store's answer for each."""
        if self.charged:
            self.not_stored = {
                n for n, one in enumerate(answers) if one.duplicate or one.error is not None
            }


class Quotas:
    """The quotas of all namespaces. Where there are none nothing is asked of the store."""

    def __init__(
        self,
        backend: Backend,
        settings: QuotaSettings,
        clock: Clock,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        self._id_characters = limits.id_characters
        self._usages = backend if isinstance(backend, Usages) else None
        self._settings = settings
        self._are_set = settings.is_set
        self._clock = clock
        self._waiting: defaultdict[str, _Waiting] = defaultdict(_Waiting)
        self._purses: defaultdict[str, _Purse] = defaultdict(_Purse)

    def limits(self, namespace: str) -> bool:
        """Whether anything may be refused there."""
        quota = self._settings.of(namespace)
        return self._are_set and any(
            limit is not None
            for limit in (quota.pending_jobs, quota.submissions_per_s, quota.payload_bytes_per_s)
        )

    def can_be_stored(self, job_id: str) -> bool:
        """Whether a job may have this id."""
        try:
            check_text("id", job_id, self._id_characters)
        except InvalidArgument:
            return False
        return True

    def spawn_depth(self, namespace: str) -> int | None:
        """How deep a chain of jobs that spawn each other may become there."""
        return self._settings.of(namespace).spawn_depth

    async def room(self, namespaces: Collection[str]) -> dict[str, int]:
        """How many more jobs may wait, for those namespaces of which there is a limit."""
        await self._look(dict.fromkeys(namespaces, 1))
        return {
            name: max(most - self._waiting[name].jobs, 0)
            for name in namespaces
            if (most := self._settings.of(name).pending_jobs) is not None
        }

    @asynccontextmanager
    async def admitting(
        self, jobs: Sequence[Job], *, whole: bool = True, on_credit: bool = True
    ) -> AsyncIterator[Admission]:
        """Inside, the jobs are stored. Raises QuotaExceeded where they do not fit as a `whole`;
        else gives by place those that are not to be stored: of a namespace the first go before
        the others. Unless `on_credit`, a crowd gets no more than a full bucket holds.
        """
        admission = Admission()
        stored = False
        try:
            if self._are_set:
                await self._admit(jobs, whole, on_credit, admission)
            for error in admission.refused.values() if whole else ():
                raise error
            yield admission
            stored = True
        except Exception:
            await self._give_back(jobs, admission.charged)
            raise
        finally:
            self._settle(admission, stored)
        if admission.not_stored:
            await self._give_back(jobs, admission.charged, admission.not_stored)

    def _settle(self, admission: Admission, stored: bool) -> None:
        for namespace, count in admission.reserved.items():
            known = self._waiting[namespace]
            known.storing -= count
            if stored and count:
                charged = admission.charged.get(namespace, ())
                known.stored += count - sum(n in admission.not_stored for n in charged)

    async def _give_back(
        self,
        jobs: Sequence[Job],
        charged: Mapping[str, Sequence[int]],
        only: Collection[int] | None = None,
    ) -> None:
        """The tokens of what was charged, or of these places only."""
        for namespace, places in charged.items():
            mine = [jobs[n] for n in places if only is None or n in only]
            for cost in _costs(namespace, self._settings.of(namespace), mine):
                # What was stored is stored, whatever becomes of the tokens.
                with suppress(Unavailable):
                    await self._return(cost)

    async def _admit(
        self, jobs: Sequence[Job], whole: bool, on_credit: bool, admission: Admission
    ) -> None:
        places = self._limited(jobs)
        if len(places) > 1:
            await self._look({name: len(mine) for name, mine in places.items()})
        batch = _Batch(jobs, self._usages)
        over: list[tuple[_Wanted, list[int], QuotaExceeded]] = []
        for namespace, mine in places.items():
            wanted = _Wanted(namespace, self._settings.of(namespace), whole, on_credit)
            if not batch.is_keyed(mine):
                room, error = await self._take_up(wanted, [jobs[n] for n in mine], admission)
                admission.charge(namespace, mine, room, error)
                continue
            # What fits not as a whole may do so but for its repeats.
            first = batch.first_of(mine)
            strict = replace(wanted, whole=True)
            room, error = await self._take_up(strict, [jobs[n] for n in first], admission)
            if error is None:
                admission.charge(namespace, first, room, None)
            else:
                over.append((wanted, first, error))
        new = await batch.not_stored([first for _, first, _ in over])
        for (wanted, first, full), left in zip(over, new, strict=True):
            room, error = 0, full
            if not whole or len(left) < len(first):
                room, error = await self._take_up(wanted, [jobs[n] for n in left], admission)
            admission.charge(wanted.namespace, left, room, error)
        for mine in places.values():
            batch.refuse_followers(mine, admission.refused)

    def _limited(self, jobs: Sequence[Job]) -> dict[str, list[int]]:
        """Places of the jobs in which a quota has a say, by namespace."""
        by_namespace: defaultdict[str, list[int]] = defaultdict(list)
        for n, job in enumerate(jobs):
            # The others the store refuses, and says what is wrong with them.
            if isinstance(job, Job) and _has_names(job, self._id_characters):
                by_namespace[job.namespace].append(n)
        return {name: mine for name, mine in by_namespace.items() if self.limits(name)}

    async def _take_up(
        self, wanted: "_Wanted", jobs: Sequence[Job], admission: Admission
    ) -> tuple[int, QuotaExceeded | None]:
        """Room and tokens for how many of the jobs, from the first on, and what is lacking."""
        namespace, reserved = wanted.namespace, admission.reserved
        room, error = await self._fit(wanted, len(jobs), reserved)
        if not room:
            return room, error
        paid, slow = await self._pay(wanted, jobs[:room])
        if slow is None:
            return room, error
        given_up = min(room - paid, reserved[namespace])
        self._waiting[namespace].storing -= given_up
        reserved[namespace] -= given_up
        return paid, slow

    async def _fit(
        self, wanted: "_Wanted", jobs: int, reserved: Counter[str]
    ) -> tuple[int, QuotaExceeded | None]:
        """Room for how many of so many jobs there is, and why for no more. It is taken."""
        most = wanted.quota.pending_jobs
        if most is None or self._usages is None:
            return jobs, None
        await self._look({wanted.namespace: jobs})
        known = self._waiting[wanted.namespace]
        held = known.jobs
        room = min(max(most - held, 0), jobs)
        if room < jobs and wanted.whole:
            room = 0
        known.storing += room
        reserved[wanted.namespace] += room
        retry_after_s = None if wanted.whole and jobs > most else _PENDING_RETRY_S
        # Those that are let in are there before the others.
        short = QuotaExceeded(PENDING_JOBS, held + room, most, retry_after_s, jobs)
        return room, short if room < jobs else None

    async def _look(self, asked: Mapping[str, int]) -> None:
        """Counts anew, in one statement, where it is long ago or so many jobs would not fit."""
        if self._usages is None:
            return
        async with AsyncExitStack() as locks:
            old: dict[str, _Waiting] = {}
            # In one order, so that two never wait for each other.
            for name in sorted(asked):
                if self._is_old(name, asked[name]):
                    await locks.enter_async_context(self._waiting[name].lock)
                    if self._is_old(name, asked[name]):
                        old[name] = self._waiting[name]
            if not old:
                return
            stored = {name: known.stored for name, known in old.items()}
            counted = await self._usages.usage_of(list(old))
            for name, known in old.items():
                known.stored -= stored[name]
                known.counted = counted[name].pending
                known.counted_at_s = self._clock.monotonic()

    def _is_old(self, namespace: str, jobs: int) -> bool:
        most = self._settings.of(namespace).pending_jobs
        if most is None:
            return False
        known = self._waiting[namespace]
        age_s = self._clock.monotonic() - known.counted_at_s
        return age_s >= FRESH_S or (known.jobs + jobs > most and age_s >= _AGAIN_S)

    async def _pay(
        self, wanted: "_Wanted", jobs: Sequence[Job]
    ) -> tuple[int, QuotaExceeded | None]:
        """For how many of the jobs, from the first on, there are tokens, and what is lacking."""
        paid, step = 0, len(jobs)
        lacking: QuotaExceeded | None = None
        if not wanted.on_credit:
            step = _held_by_full_buckets(wanted, jobs)
        while step:
            short = await self._afford(wanted, jobs[paid : paid + step])
            if short is None:
                paid += step
                if lacking is None:
                    step = min(step, len(jobs) - paid)
                    continue
            lacking = lacking or short
            # Steps of which none fits are halved, so that a crowd takes what one of it could.
            step = 0 if wanted.whole else min(step // 2, len(jobs) - paid)
        return paid, lacking

    async def _afford(self, wanted: "_Wanted", jobs: Sequence[Job]) -> QuotaExceeded | None:
        """Takes what the jobs cost, or says what is lacking."""
        paid: list[_Cost] = []
        for cost in _costs(wanted.namespace, wanted.quota, jobs):
            wait_s = await self._take(cost)
            if wait_s:
                for earlier in paid:
                    self._purses[earlier.bucket].left += earlier.amount
                maximum = max(ceil(cost.rate_per_s), 1)
                return QuotaExceeded(cost.limit, max(cost.amount, maximum), maximum, wait_s)
            paid.append(cost)
        return None

    async def _take(self, cost: "_Cost") -> float:
        usages, purse = self._usages, self._purses[cost.bucket]
        if usages is None:
            return 0.0
        async with purse.lock:
            if self._clock.monotonic() >= purse.until_s:
                purse.left = 0.0
            if purse.left < cost.amount:
                lacking = cost.amount - purse.left
                ahead = min(cost.rate_per_s * _AHEAD_S, cost.burst * _AHEAD_S)
                terms = {"rate_per_s": cost.rate_per_s, "burst": cost.burst}
                fetched = max(lacking, ahead)
                wait_s = await usages.take_tokens(cost.bucket, fetched, **terms)
                if wait_s and ahead > lacking:
                    fetched = lacking
                    wait_s = await usages.take_tokens(cost.bucket, lacking, **terms)
                if wait_s:
                    return wait_s
                purse.left += fetched
                purse.until_s = self._clock.monotonic() + _KEPT_S
            purse.left -= cost.amount
        return 0.0

    async def _return(self, cost: "_Cost") -> None:
        if self._usages is not None:
            terms = {"rate_per_s": cost.rate_per_s, "burst": cost.burst}
            await self._usages.return_tokens(cost.bucket, cost.amount, **terms)

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


@dataclass(frozen=True, slots=True)
class _Wanted:
    """Of which quota something is wanted, and how."""

    namespace: str
    quota: Quota
    whole: bool
    on_credit: bool


@dataclass(frozen=True, slots=True)
class _Cost:
    """Tokens of one bucket."""

    limit: str
    bucket: str
    amount: int
    rate_per_s: float
    burst: float


def _costs(namespace: str, quota: Quota, jobs: Sequence[Job]) -> Iterator[_Cost]:
    size = sum(len(job.payload) for job in jobs if isinstance(job.payload, bytes))
    for limit, amount, rate_per_s, burst in (
        ("submissions_per_s", len(jobs), quota.submissions_per_s, quota.submissions_burst),
        ("payload_bytes_per_s", size, quota.payload_bytes_per_s, quota.payload_bytes_burst),
    ):
        if rate_per_s is not None and amount:
            most = burst or max(rate_per_s, 1.0)
            yield _Cost(limit, f"{limit} {namespace}", amount, rate_per_s, most)


def _held_by_full_buckets(wanted: _Wanted, jobs: Sequence[Job]) -> int:
    """How many of the jobs, but at least one, cost no more than full buckets hold."""
    few, many = 1, len(jobs)
    while few < many:
        middle = (few + many + 1) // 2
        costs = _costs(wanted.namespace, wanted.quota, jobs[:middle])
        if all(cost.amount <= cost.burst for cost in costs):
            few = middle
        else:
            many = middle - 1
    return many


class _Batch:
    """Which jobs of a batch store nothing, because their idempotency key is taken."""

    def __init__(self, jobs: Sequence[Job], usages: Usages | None) -> None:
        self._jobs = jobs
        self._usages = usages

    def _key(self, place: int) -> tuple[str, str] | None:
        job = self._jobs[place]
        return (job.namespace, job.idempotency_key) if job.idempotency_key else None

    def is_keyed(self, places: Sequence[int]) -> bool:
        return self._usages is not None and any(self._key(n) for n in places)

    def first_of(self, places: Sequence[int]) -> list[int]:
        """Those but for the ones whose key an earlier one has."""
        seen = set[tuple[str, str]]()
        first = []
        for n in places:
            key = self._key(n)
            if key is None or key not in seen:
                first.append(n)
            if key is not None:
                seen.add(key)
        return first

    def refuse_followers(self, places: Sequence[int], refused: dict[int, QuotaExceeded]) -> None:
        """Those that would take the keys of jobs that are refused."""
        keys = {key: refused[n] for n in places if n in refused and (key := self._key(n))}
        if keys:
            refused |= {n: keys[key] for n in places if (key := self._key(n)) in keys}

    async def not_stored(self, crowds: Sequence[Sequence[int]]) -> list[list[int]]:
        """Of each crowd those whose key nobody has. One question for all of them."""
        keys = {key for crowd in crowds for n in crowd if (key := self._key(n)) is not None}
        taken: Collection[tuple[str, str]] = ()
        if keys and self._usages is not None:
            taken = await self._usages.taken_keys(keys)
        return [[n for n in crowd if self._key(n) not in taken] for crowd in crowds]


def _has_names(job: Job, characters: int) -> bool:
    """Whether a store could know the job's namespace and idempotency key."""
    try:
        check_text("namespace", job.namespace, characters)
        check_text("idempotency_key", job.idempotency_key, characters, required=False)
    except InvalidArgument:
        return False
    return True


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
