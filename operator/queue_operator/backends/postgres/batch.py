"""Jobs on their way into the database, and the one statement that stores them."""

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from json.encoder import encode_basestring_ascii
from typing import Any, Final, TypeVar, cast

from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from queue_operator.backends.postgres.arrays import Int8s, Texts, floats
from queue_operator.backends.postgres.connection import Pool, borrowed
from queue_operator.backends.postgres.lanes import SURE, LanesInDoubt, Sure
from queue_operator.backends.postgres.receivers import receivers
from queue_operator.backends.sql import load
from queue_operator.domain.dependencies import DependencyMode
from queue_operator.domain.job import Job
from queue_operator.domain.ordering import PRIORITY_BONUS
from queue_operator.domain.retry import Backoff

_IF_TAKEN: Final = "ON CONFLICT (namespace_id, id) DO NOTHING"
_SUBMIT: Final = load(__package__, "submit", if_taken=_IF_TAKEN, sure=SURE)
_SUBMIT_NEW: Final = load(__package__, "submit", if_taken="", sure=SURE)
_CALLBACKS: Final = load(__package__, "callback_store")
_RESERVE: Final = "SELECT nextval('job_no_block') FROM generate_series(1, %(blocks)s)"
_PASS_BY: Final = load(__package__, "number_pass_by")
_BLOCK: Final = 1000
_BACKOFF_FIELDS: Final = tuple(field.name for field in fields(Backoff))

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Batch:
    """Jobs sorted by namespace and id, the order in which everybody stores them. `places` are
    their positions in the caller's sequence; `named` says that errors name the places.
    """

    places: Sequence[int]
    jobs: Sequence[Job]
    numbers: Sequence[int]
    namespaces: Sequence[int]
    lanes: Sequence[int]
    sure: Sure
    named: bool

    def __len__(self) -> int:
        return len(self.jobs)

    def field(self, n: int, name: str) -> str:
        """What an error calls a field of the n-th job."""
        return f"jobs[{self.places[n]}].{name}" if self.named else name

    def only(self, chosen: Collection[int]) -> "Batch":
        """The batch of the jobs with these indexes."""
        if len(chosen) == len(self):
            return self
        rows = sorted(chosen)
        return Batch(
            [self.places[n] for n in rows],
            [self.jobs[n] for n in rows],
            [self.numbers[n] for n in rows],
            [self.namespaces[n] for n in rows],
            [self.lanes[n] for n in rows],
            self.sure,
            self.named,
        )


class Numbers:
    """Job numbers, reserved in blocks so that a batch need not be read back."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._free: list[int] = []

    async def take(self, count: int) -> list[int]:
        while len(self._free) < count:
            blocks = (count - len(self._free)) // _BLOCK + 1
            async with borrowed(self._pool) as connection:
                cursor = await connection.execute(_RESERVE, {"blocks": blocks})
                for (block,) in await cursor.fetchall():
                    self._free += range(block * _BLOCK, (block + 1) * _BLOCK)
        taken, self._free = self._free[:count], self._free[count:]
        return taken

    async def pass_by_stored(self) -> None:
        """Gives up what is reserved, and all blocks up to the highest stored number. After a
        restore, or a failover that lost the last moments, the sequence may hand out numbers anew.
        """
        self._free.clear()
        async with borrowed(self._pool) as connection:
            await connection.execute(_PASS_BY, {"block": _BLOCK})


async def store(
    connection: AsyncConnection[TupleRow],
    batch: Batch,
    *,
    parents: Collection[int] = (),
    blocked: Collection[int] = (),
) -> tuple[datetime, set[int]]:
    """Stores the jobs of a batch; gives the time that it was, and the numbers of those whose id
    was new. `parents` and `blocked` are the numbers of those that others wait for and that wait
    for others. Raises LanesInDoubt, and stores nothing.
    """
    parameters = {
        **_parameters(batch),
        "has_children": _given(number in parents or None for number in batch.numbers),
        "blocked": _given(number in blocked or None for number in batch.numbers),
        "suspended": _given(job.suspended or None for job in batch.jobs),
    }
    cursor = await connection.execute(_SUBMIT, parameters)
    [(now, numbers, is_sure)] = await cursor.fetchall()
    if not is_sure:
        raise LanesInDoubt
    return now, set(numbers or ())


async def store_new(connection: AsyncConnection[TupleRow], batch: Batch) -> datetime:
    """Stores jobs that nobody waits for, that wait for nobody and are not suspended, in a statement
    that needs no transaction around it; gives the time that it was.

    Raises UniqueViolation, and stores nothing, where an id is taken; LanesInDoubt likewise.
    """
    parameters = {**_parameters(batch), "has_children": None, "blocked": None, "suspended": None}
    cursor = await connection.execute(_SUBMIT_NEW, parameters)
    [(now, _, is_sure)] = await cursor.fetchall()
    if not is_sure:
        raise LanesInDoubt
    return cast(datetime, now)


async def store_callbacks(
    connection: AsyncConnection[TupleRow], jobs: Sequence[Job], numbers: Sequence[int]
) -> None:
    """For those of some new jobs that have one."""
    given = {n: job for n, job in zip(numbers, jobs, strict=True) if job.callback_url}
    if given:
        told = given.values()
        parameters = {
            "job_nos": Int8s(given),
            "receivers": Int8s(receivers(told)),
            "urls": Texts(job.callback_url for job in told),
            "namespaces": Texts(job.namespace for job in told),
            "ids": Texts(job.id for job in told),
            "types": Texts(job.type for job in told),
        }
        await connection.execute(_CALLBACKS, parameters)


def _parameters(batch: Batch) -> dict[str, Any]:
    jobs = batch.jobs
    resources = [job.resource for job in jobs]
    return {
        "numbers": Int8s(batch.numbers),
        "namespaces": Int8s(batch.namespaces),
        "ids": Texts(job.id for job in jobs),
        "lanes": Int8s(batch.lanes),
        "payloads": [job.payload for job in jobs],
        "content_types": Texts(job.content_type for job in jobs),
        "created": _given(job.created_at for job in jobs),
        "correlations": Texts(job.correlation_id for job in jobs),
        "clusters": _given(r.cluster_uid if r else None for r in resources),
        "names": _given(r.name if r else None for r in resources),
        "generations": _given(r.generation if r else None for r in resources),
        "delays": _given(float(job.delay_s) if job.delay_s else None for job in jobs),
        "scheduled": _given(job.scheduled_at for job in jobs),
        "max_attempts": _given(job.max_attempts for job in jobs),
        "timeouts": _given(floats(job.timeout_s for job in jobs)),
        "backoffs": _given(dump_backoff(job.backoff) for job in jobs),
        "bonuses": _given(PRIORITY_BONUS[job.priority].total_seconds() or None for job in jobs),
        "modes": _given(_mode(job) for job in jobs),
        "traceparents": _given(job.traceparent or None for job in jobs),
        "tracestates": _given(job.tracestate or None for job in jobs),
        **batch.sure.parameters,
        **submission_event(jobs, batch.lanes),
    }


def _given(values: Iterable[_T | None]) -> list[_T | None] | None:
    """No array at all where no job has such a value: beyond its end an array is NULL too, and
    each array costs as much as a job does.
    """
    found = list(values)
    return found if any(value is not None for value in found) else None


def _mode(job: Job) -> str | None:
    """None for nearly all jobs: what the mode says of a job without parents is kept only where
    it was given.
    """
    default = job.dependency_mode is DependencyMode.AFTER
    return None if default and not job.depends_on else job.dependency_mode.value


def submission_event(jobs: Sequence[Job], lanes: Sequence[int]) -> dict[str, Any]:
    """What the submission event carries, see `EventBatch`."""
    first = dict(zip(reversed(lanes), reversed(jobs), strict=True))
    places = {lane: place for place, lane in enumerate(first)}
    correlations = [job.correlation_id for job in jobs]
    return {
        "lane_of": Int8s(places[lane] for lane in lanes),
        "event_lanes": _lanes(first.values()),
        "event_lane_ids": Int8s(first),
        "event_correlations": correlations if any(correlations) else None,
    }


def _lanes(jobs: Iterable[Job]) -> str:
    """What the event says of the lanes of some jobs. There may be one per job: made by a single
    call of `json.dumps`, this takes as long as all else that is done for the job.
    """
    heads: dict[tuple[str, str, str], str] = {}
    lanes = []
    for job in jobs:
        kind = job.namespace, job.type, job.priority
        if kind not in heads:
            named = dict(zip(("namespace", "type", "priority"), kind, strict=True))
            heads[kind] = json.dumps(named).removesuffix("}")
        tags = ", ".join([encode_basestring_ascii(tag) for tag in sorted(job.tags)])
        lanes.append(f'{heads[kind]}, "tags": [{tags}]}}')
    return f"[{', '.join(lanes)}]"


def dump_backoff(backoff: Backoff | None) -> str | None:
    # `asdict` copies each value, which took longer than all else that is done for a job.
    if backoff is None:
        return None
    return json.dumps({name: getattr(backoff, name) for name in _BACKOFF_FIELDS})
