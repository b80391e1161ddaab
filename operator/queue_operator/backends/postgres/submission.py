"""Submission: many jobs in one transaction, all or none."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, Protocol

import psycopg
from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from queue_operator.backends.postgres.batch import (
    Batch,
    Numbers,
    store,
    store_callbacks,
    store_new,
)
from queue_operator.backends.postgres.connection import (
    Pool,
    again_when_undone,
    borrowed,
    patience_for,
    transaction,
)
from queue_operator.backends.postgres.copying import Copying, can_be_copied
from queue_operator.backends.postgres.idempotency import (
    Keys,
    KeysHeld,
    digests_of,
    glancing,
    take_keys,
)
from queue_operator.backends.postgres.lanes import Lanes, LanesInDoubt
from queue_operator.backends.postgres.linking import Links, find_links, store_links
from queue_operator.backends.postgres.suspending import note_new
from queue_operator.backends.protocol import KeyHeld
from queue_operator.backends.splitting import store_apart
from queue_operator.backends.sql import load
from queue_operator.backends.turns import Turns
from queue_operator.domain.batch import followers, together
from queue_operator.domain.dependencies import Wait
from queue_operator.domain.errors import (
    DuplicateJob,
    InvalidArgument,
    KeyConflict,
    QueueError,
    Unavailable,
)
from queue_operator.domain.job import Job, Submitted
from queue_operator.domain.outcome import ErrorCategory
from queue_operator.domain.record import accepted
from queue_operator.domain.states import JobState

_FIND: Final = load(__package__, "find_numbers")
_TELL: Final = load(__package__, "submit_tell")
_GROUP: Final = 500
_NUMBER_TRIES: Final = 3
_MOST_WAITING: Final = 10_000
"""While the store is away, callers wait; those beyond this many are told to come again."""


class Guard(Protocol):
    """What else the transaction has to do that stores a batch."""

    async def refusals(
        self, connection: AsyncConnection[TupleRow], batch: Batch
    ) -> Mapping[int, QueueError]:
        """By index, the jobs that must not be stored. Asked first."""
        ...

    async def note(
        self, connection: AsyncConnection[TupleRow], batch: Batch, new: Collection[int]
    ) -> None:
        """The jobs with these indexes were stored."""
        ...


_Waiting = tuple[Job, asyncio.Future[Submitted]]


class Submission:
    """Stores jobs that were validated before.

    What is wrong with a job is looked for in one order: its id is taken, unless it repeats the
    submission that has its key; its key is; a parent is missing.
    """

    def __init__(self, pool: Pool, lanes: Lanes) -> None:
        self._pool = pool
        self._lanes = lanes
        self._numbers = Numbers(pool)
        self._copying = Copying(pool, lanes, self._numbers)
        self._waiting: list[_Waiting] = []
        self._flusher: asyncio.Task[None] | None = None
        # Who waits for a key keeps a connection: never may they keep all of them.
        self._waiting_room = asyncio.Semaphore(max(pool.max_size // 4, 1))
        self._alone = Turns()

    async def store(
        self,
        jobs: Sequence[Job],
        *,
        atomic: bool,
        named: bool = True,
        guard: "Guard | None" = None,
        patient: bool = True,
    ) -> list[Submitted]:
        """With `atomic`, raises what is wrong and stores nothing. Fields of an error begin with
        the job's place unless not `named`. Unless `patient`, raises KeysHeld and stores nothing
        where it would have to wait for a key.
        """
        if guard is None and can_be_copied(jobs) and (now := await self._copying.store(jobs)):
            return [accepted(job, now) for job in jobs]
        left = dict(enumerate(jobs))
        answers: dict[int, Submitted] = {}
        how = _How(named, atomic, await digests_of(jobs), guard)
        while left:
            attempt = await self._attempt_apart(left, how, patient or bool(answers))
            if atomic and attempt.errors:
                raise together(attempt.errors)
            answers |= attempt.answers
            left = {n: job for n, job in left.items() if n not in answers}
        return [answers[n] for n in range(len(jobs))]

    async def store_each(self, jobs: Sequence[Job]) -> list[Submitted]:
        """As `store`, not atomic, for callers who have nothing to do with each other. Where
        somebody else is taking one of the keys nobody waits: all that have one, of which each may
        be in the way, are answered with KeyHeld.
        """
        try:
            return await self.store(jobs, atomic=False, named=False, patient=False)
        except KeysHeld:
            plain = [job for job in jobs if not job.idempotency_key]
        stored = iter(await self.store(plain, atomic=False, named=False) if plain else ())
        return [
            Submitted(job_id=job.id, error=KeyHeld(job.idempotency_key))
            if job.idempotency_key
            else next(stored)
            for job in jobs
        ]

    async def _attempt_apart(
        self, jobs: Mapping[int, Job], how: "_How", patient: bool
    ) -> "_Attempt":
        """Who has to wait for a key waits where others have to, too."""
        if not any(job.idempotency_key for job in jobs.values()):
            return await self._attempt_with_new_numbers(jobs, how)
        try:
            return await self._attempt_with_new_numbers(jobs, replace(how, patient=False))
        except KeysHeld:
            if not patient:
                raise
        async with self._waiting_room:
            return await self._attempt_with_new_numbers(jobs, how)

    async def _attempt_with_new_numbers(self, jobs: Mapping[int, Job], how: "_How") -> "_Attempt":
        for _ in range(_NUMBER_TRIES):
            batch = await self._batch(jobs, how.named)
            try:
                if how.guard is None and (now := await self._store_at_once(batch)):
                    return _Attempt(errors={}, answers=_answers(batch, now))
                return await self._attempt(batch, how)
            except psycopg.errors.UniqueViolation:
                # An id that exists is no error to the statement: it is the number.
                await self._numbers.pass_by_stored()
            except LanesInDoubt:
                self._lanes.doubt(jobs.values())
        raise Unavailable("job numbers or lanes are in doubt again and again; call again")

    async def store_one(self, job: Job) -> Submitted:
        """As `store`, but shares a transaction with concurrent callers."""
        if job.depends_on:
            # The group would take another caller's job for one of the same batch.
            [answer] = await self.store([job], atomic=True, named=False)
            return answer
        if len(self._waiting) + self._alone.waiting >= _MOST_WAITING:
            raise Unavailable(f"{_MOST_WAITING} submissions wait to be stored; call again later")
        if job.idempotency_key and self._alone.is_known(job):
            return await self._store_alone(job)
        stored: asyncio.Future[Submitted] = asyncio.get_running_loop().create_future()
        self._waiting.append((job, stored))
        if self._flusher is None or self._flusher.done():
            self._flusher = asyncio.create_task(self._flush())
        return await stored

    async def aclose(self) -> None:
        """Waits until what callers still wait for is stored."""
        if self._flusher is not None:
            await asyncio.wait([self._flusher])
        await self._alone.ended()

    async def _flush(self) -> None:
        # Whoever comes while a transaction runs goes with the next one.
        while self._waiting:
            group = self._take_group()
            if not group:
                continue
            answers = await store_apart(self.store_each, [job for job, _ in group])
            for one, answer in zip(group, answers, strict=True):
                outcome = answer.error or answer if isinstance(answer, Submitted) else answer
                if isinstance(outcome, KeyHeld):
                    self._alone.start(self._tell_alone(one))
                else:
                    _answer(one, outcome)

    async def _tell_alone(self, one: "_Waiting") -> None:
        try:
            _answer(one, await self._store_alone(one[0]))
        except Exception as error:
            _answer(one, error)

    async def _store_alone(self, job: Job) -> Submitted:
        """Waits for somebody else's transaction, and only who wants the same key for this."""
        async with self._alone.turn(job):
            [answer] = await self.store([job], atomic=False, named=False)
        if answer.error is not None:
            raise answer.error
        return answer

    def _take_group(self) -> list[_Waiting]:
        """Callers with different ids: of two with the same, the second sees how the first did."""
        group: dict[tuple[str, str], _Waiting] = {}
        rest: list[_Waiting] = []
        for one in self._waiting:
            if one[1].done():
                continue  # whoever waited has gone
            name = one[0].namespace, one[0].id
            if name in group or len(group) == _GROUP:
                rest.append(one)
            else:
                group[name] = one
        self._waiting = rest
        return list(group.values())

    async def _batch(self, jobs: Mapping[int, Job], named: bool) -> Batch:
        interned = await self._lanes.of_jobs(jobs.values())
        lanes = dict(zip(jobs, interned.ids, strict=True))
        found = await self._lanes.namespace_ids([job.namespace for job in jobs.values()])
        spaces = {n: namespace_id or 0 for n, namespace_id in zip(jobs, found, strict=True)}
        numbers = dict(zip(jobs, await self._numbers.take(len(jobs)), strict=True))
        places = sorted(jobs, key=lambda n: (spaces[n], jobs[n].id))
        return Batch(
            places,
            [jobs[n] for n in places],
            [numbers[n] for n in places],
            [spaces[n] for n in places],
            [lanes[n] for n in places],
            interned.sure,
            named,
        )

    @again_when_undone
    async def _store_at_once(self, batch: Batch) -> datetime | None:
        """Stores jobs that nearly always can be, without the round trips of a transaction, and
        gives the time. None when nothing is stored, because there is more to look at.
        """
        if any(
            job.idempotency_key or job.depends_on or job.callback_url or job.suspended
            for job in batch.jobs
        ):
            return None
        try:
            async with borrowed(self._pool, _patience_s(batch)) as connection:
                return await store_new(connection, batch)
        except psycopg.errors.UniqueViolation:
            return None

    @again_when_undone
    async def _attempt(self, batch: Batch, how: "_How") -> "_Attempt":
        """Stores all, or nothing when something is wrong with one. Not atomic, clashes of
        keys are no reason to store nothing. Unless it is patient, raises KeysHeld.
        """
        try:
            async with transaction(self._pool, _patience_s(batch)) as connection:
                with nullcontext() if how.patient else glancing():
                    return await self._write(connection, batch, how)
        except _RollBack as undone:
            return _Attempt(errors=undone.errors, answers=_refusals(batch, undone.errors))

    async def _write(
        self, connection: AsyncConnection[TupleRow], batch: Batch, how: "_How"
    ) -> "_Attempt":
        """Raises _RollBack with what is wrong."""
        atomic, guard = how.atomic, how.guard
        keys, links = Keys(), Links()
        if guard is not None and (refused := await guard.refusals(connection, batch)):
            raise _RollBack({batch.places[n]: error for n, error in refused.items()})
        if any(job.idempotency_key for job in batch.jobs):
            keys = await take_keys(connection, batch, how.digests, patient=how.patient)
        new = [n for n in range(len(batch)) if n not in {**keys.repeats, **keys.clashes}]
        if any(job.depends_on for job in batch.jobs):
            links = await find_links(connection, batch, new, keys)
        now, stored = await store(
            connection, batch.only(new), parents=links.parents, blocked=links.blocked
        )
        taken = [n for n in new if batch.numbers[n] not in stored]
        if keys.clashes:
            taken += await _existing(connection, batch, keys.clashes)
        errors = _errors(batch, new, taken, links, atomic)
        clashes = _clashes(batch, taken, keys, errors)
        if errors or (atomic and clashes):
            raise _RollBack({**errors, **(clashes if atomic else {})})
        fresh = batch.only(new)
        # Before some of them end, for want of their parents.
        await store_callbacks(connection, fresh.jobs, fresh.numbers)
        if links.children:
            await store_links(connection, links)
        if guard is not None:
            await guard.note(connection, batch, new)
        await note_new(connection, fresh.jobs, fresh.numbers)
        answers = _answers(fresh, now, links.blocked)
        answers |= await _found(connection, batch, keys, links)
        return _Attempt(errors={}, answers=answers | _refusals(batch, clashes))


@dataclass(frozen=True, slots=True)
class _How:
    """How a batch is stored."""

    named: bool
    atomic: bool
    digests: Mapping[int, bytes]
    guard: Guard | None = None
    patient: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class _Attempt:
    """By place: what is wrong, and the answers that stand."""

    errors: Mapping[int, QueueError]
    answers: Mapping[int, Submitted]


def _patience_s(batch: Batch) -> float | None:
    edges = sum(len(job.depends_on) for job in batch.jobs)
    size = sum(len(job.payload) for job in batch.jobs)
    return patience_for(len(batch) + edges, size)


class _RollBack(Exception):
    """Something is wrong with some jobs: undo the rest."""

    def __init__(self, errors: Mapping[int, QueueError]) -> None:
        super().__init__(f"{len(errors)} jobs are refused")
        self.errors = errors


async def _existing(
    connection: AsyncConnection[TupleRow], batch: Batch, chosen: Mapping[int, object]
) -> list[int]:
    """Those of the chosen jobs whose id is stored."""
    rows = list(chosen)
    parameters = {
        "namespaces": [batch.namespaces[n] for n in rows],
        "ids": [batch.jobs[n].id for n in rows],
    }
    cursor = await connection.execute(_FIND, parameters)
    return [rows[place - 1] for place, _ in await cursor.fetchall()]


def _rest(field: str) -> str:
    return field.partition(".")[2]


def _errors(
    batch: Batch, new: Sequence[int], taken: Sequence[int], links: Links, atomic: bool
) -> dict[int, QueueError]:
    """By place, what is wrong with jobs that would be stored."""
    errors: dict[int, QueueError] = {**links.errors}
    for n in taken:
        place = batch.places[n] if batch.named else 0
        errors[n] = DuplicateJob((batch.jobs[n].id,), (place,))
    # Without the jobs that are refused for sure, those that lack one of the batch may find it.
    sure = [n for n in errors if n in taken or n not in links.unsure] or list(errors)
    told = {n: errors[n] for n in sure}
    if not atomic:
        # At once, and not one generation in each transaction.
        orphans = [n for n in sure if n in links.errors and n not in taken]
        waiting = {n: batch.jobs[n] for n in new if n not in told or n in orphans}
        for n, error in followers(waiting, orphans).items():
            told[n] = InvalidArgument(batch.field(n, _rest(error.field)), error.reason)
    return {batch.places[n]: told[n] for n in sorted(told, key=batch.places.__getitem__)}


def _clashes(
    batch: Batch, taken: Sequence[int], keys: Keys, errors: Mapping[int, QueueError]
) -> dict[int, QueueError]:
    """By place, the jobs that are not stored because of their key. The job that has it may be
    one of the batch, so this stands only once the batch is stored, and if that one is right.
    """
    refused = {batch.numbers[n] for n in range(len(batch)) if batch.places[n] in errors}
    clashes: dict[int, QueueError] = {}
    for n, holder in keys.clashes.items():
        if n not in taken and holder.job_no not in refused:
            field = batch.field(n, "idempotency_key")
            error = KeyConflict(batch.jobs[n].idempotency_key, holder.job_id, field)
            clashes[batch.places[n]] = error
    return dict(sorted(clashes.items()))


def _refusals(batch: Batch, errors: Mapping[int, QueueError]) -> dict[int, Submitted]:
    ids = dict(zip(batch.places, (job.id for job in batch.jobs), strict=True))
    return {place: Submitted(job_id=ids[place], error=error) for place, error in errors.items()}


def _answers(batch: Batch, now: datetime, blocked: Collection[int] = ()) -> dict[int, Submitted]:
    """For a batch that was stored."""
    given = zip(batch.places, batch.jobs, batch.numbers, strict=True)
    return {place: accepted(job, now, waits=number in blocked) for place, job, number in given}


async def _found(
    connection: AsyncConnection[TupleRow], batch: Batch, keys: Keys, links: Links
) -> dict[int, Submitted]:
    """Answers that are to be looked up: for repeats, and for all that wait for others where some
    of these were skipped at once.
    """
    wanted = {n: holder.job_no for n, holder in keys.repeats.items()}
    if any(child.wait is Wait.SKIP for child in links.children):
        children = {child.job_no for child in links.children}
        wanted |= {n: number for n, number in enumerate(batch.numbers) if number in children}
    if not wanted:
        return {}
    cursor = await connection.execute(_TELL, {"job_nos": list(set(wanted.values()))})
    told = {number: rest for number, *rest in await cursor.fetchall()}
    answers: dict[int, Submitted] = {}
    for n, number in wanted.items():
        repeated = keys.repeats.get(n)
        answer = Submitted(
            job_id=repeated.job_id if repeated else batch.jobs[n].id, duplicate=repeated is not None
        )
        answers[batch.places[n]] = _as_it_is(answer, *told[number]) if number in told else answer
    return answers


def _as_it_is(
    answer: Submitted,
    created_at: datetime,
    eligible_at: datetime,
    blocked: bool,
    state: str,
    category: str | None,
) -> Submitted:
    return replace(
        answer,
        created_at=created_at,
        eligible_at=eligible_at,
        waiting_for_dependencies=blocked,
        state=JobState(state),
        permanent=category == ErrorCategory.PERMANENT,
    )


def _answer(one: _Waiting, outcome: Submitted | Exception) -> None:
    stored = one[1]
    if stored.done():
        return
    if isinstance(outcome, Exception):
        stored.set_exception(outcome)
    else:
        stored.set_result(outcome)
