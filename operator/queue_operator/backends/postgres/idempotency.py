"""Idempotency keys: who has a key, whom it makes a repeat, and whom it refuses."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

import psycopg
from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from queue_operator.backends.postgres.batch import Batch
from queue_operator.backends.sql import load
from queue_operator.domain.idempotency import content_digest
from queue_operator.domain.job import Job

_TAKE: Final = load(__package__, "key_take")
_FIND: Final = load(__package__, "key_find")

_LARGE: Final = 16 * 1024
_GLANCE: Final = "50ms"
"""So long is waited for somebody else's transaction by who keeps others waiting meanwhile."""

_Key = tuple[int, str]


@dataclass(frozen=True, slots=True)
class Holder:
    """The job that has a key."""

    job_no: int
    job_id: str
    digest: bytes


@dataclass(frozen=True, slots=True)
class Keys:
    """The jobs of a batch, by index, that are not to be stored, each with the job that has
    their key: those of equal content, and those of other content.
    """

    repeats: Mapping[int, Holder] = field(default_factory=dict)
    clashes: Mapping[int, Holder] = field(default_factory=dict)


class KeysHeld(Exception):
    """Another transaction is taking one of the keys, or holds what else is to be locked."""


@contextmanager
def glancing() -> Iterator[None]:
    """Around what follows `take_keys` too. Raises KeysHeld where it would have to wait."""
    try:
        yield
    except psycopg.errors.LockNotAvailable as error:
        raise KeysHeld from error


async def digests_of(jobs: Sequence[Job]) -> dict[int, bytes]:
    """By place, of those that have a key. A large document takes as long as many small statements:
    it is read in a thread.
    """
    keyed = {n: job for n, job in enumerate(jobs) if job.idempotency_key}
    large = {n: job for n, job in keyed.items() if len(job.payload) > _LARGE}
    digests = {n: content_digest(job) for n, job in keyed.items() if n not in large}
    for n, job in large.items():
        digests[n] = await asyncio.to_thread(content_digest, job)
    return digests


async def take_keys(
    connection: AsyncConnection[TupleRow],
    batch: Batch,
    digests: Mapping[int, bytes],
    *,
    patient: bool = True,
) -> Keys:
    """Takes the keys of a batch for the first job that names each, where they are free. `digests`
    are by place. Waits for other transactions that are taking one of them; unless `patient` only
    for a moment.
    """
    asking = _asking(batch, digests)
    first = {key: next(iter(jobs.values())) for key, jobs in asking}
    holders = await _holders(connection, first, None if patient else _GLANCE)
    repeats: dict[int, Holder] = {}
    clashes: dict[int, Holder] = {}
    for key, jobs in asking:
        holder = holders[key]
        for n, one in jobs.items():
            if one.job_no != holder.job_no:
                (repeats if one.digest == holder.digest else clashes)[n] = holder
    return Keys(repeats, clashes)


def _asking(
    batch: Batch, digests: Mapping[int, bytes]
) -> Sequence[tuple[_Key, Mapping[int, Holder]]]:
    """Who asks for each key, in the caller's order; the keys in order."""
    asking: dict[_Key, dict[int, Holder]] = {}
    for n in sorted(range(len(batch)), key=batch.places.__getitem__):
        job = batch.jobs[n]
        if job.idempotency_key:
            one = Holder(batch.numbers[n], job.id, digests[batch.places[n]])
            asking.setdefault((batch.namespaces[n], job.idempotency_key), {})[n] = one
    return sorted(asking.items())


async def _holders(
    connection: AsyncConnection[TupleRow], first: Mapping[_Key, Holder], glance: str | None
) -> dict[_Key, Holder]:
    holders: dict[_Key, Holder] = {}
    left = list(first)
    # A key whose job is deleted between the two statements is free: ask again.
    while left:
        new = await _take(connection, {key: first[key] for key in left}, glance)
        holders |= {key: first[key] for key in left if first[key].job_no in new}
        left = [key for key in left if key not in holders]
        if left:
            holders |= await _find(connection, left)
            left = [key for key in left if key not in holders]
    return holders


async def _take(
    connection: AsyncConnection[TupleRow], wanted: Mapping[_Key, Holder], glance: str | None
) -> set[int]:
    parameters = {
        "glance": glance,
        "namespaces": [namespace_id for namespace_id, _ in wanted],
        "keys": [key for _, key in wanted],
        "numbers": [one.job_no for one in wanted.values()],
        "digests": [one.digest for one in wanted.values()],
    }
    cursor = await connection.execute(_TAKE, parameters)
    return {number for (number,) in await cursor.fetchall()}


async def _find(connection: AsyncConnection[TupleRow], keys: Sequence[_Key]) -> dict[_Key, Holder]:
    parameters = {
        "namespaces": [namespace_id for namespace_id, _ in keys],
        "keys": [key for _, key in keys],
    }
    cursor = await connection.execute(_FIND, parameters)
    return {
        keys[place - 1]: Holder(job_no, job_id, digest)
        for place, job_no, job_id, digest in await cursor.fetchall()
    }
