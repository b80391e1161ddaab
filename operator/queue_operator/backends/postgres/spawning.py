"""Children that running jobs submit, stored only while their parent's token is current."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final
from uuid import UUID

from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from queue_operator.backends.plane_base import SPAWN
from queue_operator.backends.postgres.batch import Batch
from queue_operator.backends.postgres.connection import Pool, borrowed
from queue_operator.backends.postgres.lanes import Lanes
from queue_operator.backends.postgres.rows import storable_token
from queue_operator.backends.postgres.submission import Submission
from queue_operator.backends.sql import load
from queue_operator.domain.batch import unplaced
from queue_operator.domain.errors import (
    DuplicateJob,
    InvalidTransition,
    QueueError,
    StaleLease,
)
from queue_operator.domain.job import Submitted
from queue_operator.domain.running import SpawnRequest
from queue_operator.domain.states import JobState

_PARENTS: Final = load(__package__, "spawn_parents")
_FENCE: Final = load(__package__, "spawn_fence")
_NOTE: Final = load(__package__, "spawn_note")

_DOUBTFUL: Final = (DuplicateJob, StaleLease)

_Name = tuple[str, str]


@dataclass(frozen=True, slots=True)
class _Parent:
    """As it was found: a job that runs, or was lost, under the token that was given."""

    job_no: int
    state: JobState
    correlation_id: str
    depth: int
    token: UUID | None
    child_is_ours: bool


@dataclass(frozen=True, slots=True)
class _Guard:
    """What the transaction has to do that stores some children, whose parents are these."""

    parents: Mapping[_Name, _Parent]

    async def refusals(
        self, connection: AsyncConnection[TupleRow], batch: Batch
    ) -> dict[int, QueueError]:
        """By index, the children whose parent is no longer running under its token. The others'
        parents do not end before the transaction does.
        """
        parents = [self.parents[job.namespace, job.id] for job in batch.jobs]
        tokens = {parent.job_no: parent.token for parent in parents}
        given = sorted(tokens)
        cursor = await connection.execute(
            _FENCE, {"job_nos": given, "tokens": [tokens[number] for number in given]}
        )
        held = {number for (number,) in await cursor.fetchall()}
        return {
            n: StaleLease(batch.jobs[n].spawned_by)
            for n, parent in enumerate(parents)
            if parent.job_no not in held
        }

    async def note(
        self, connection: AsyncConnection[TupleRow], batch: Batch, new: Collection[int]
    ) -> None:
        children = [batch.numbers[n] for n in new]
        jobs = [batch.jobs[n] for n in new]
        noted = {
            "children": children,
            "parents": [job.spawned_by for job in jobs],
            "depths": [self.parents[job.namespace, job.id].depth + 1 for job in jobs],
        }
        await connection.execute(_NOTE, noted)


class Spawning:
    """The protocol `Spawner`; the requests are checked and complete."""

    def __init__(self, pool: Pool, lanes: Lanes, submission: Submission) -> None:
        self._pool = pool
        self._lanes = lanes
        self._submission = submission

    async def spawn(self, requests: Sequence[SpawnRequest]) -> list[Submitted]:
        answers = await self._turn(dict(enumerate(requests)))
        # Somebody may have stored the very child since we looked for it, or the parent was lost,
        # which leaves its token current.
        doubt = [n for n, one in answers.items() if isinstance(one.error, _DOUBTFUL)]
        if doubt:
            answers |= await self._turn({n: requests[n] for n in doubt})
        return [answers[n] for n in range(len(requests))]

    async def _turn(self, requests: Mapping[int, SpawnRequest]) -> dict[int, Submitted]:
        answers: dict[int, Submitted] = {}
        # Of two children with one id the second sees how the first did.
        for group in _different(requests):
            found = await self._find(group)
            new: dict[int, SpawnRequest] = {}
            for n, request in group.items():
                known = _answer(request, found.get(n))
                if known is None:
                    new[n] = request
                else:
                    answers[n] = known
            if new:
                answers |= await self._store(new, found)
        return answers

    async def _find(self, group: Mapping[int, SpawnRequest]) -> dict[int, _Parent]:
        places, requests = list(group), list(group.values())
        tokens = [storable_token(one.token) for one in requests]
        parameters = {
            "namespaces": await self._lanes.namespace_ids([one.namespace for one in requests]),
            "parents": [one.parent_id for one in requests],
            "tokens": tokens,
            "ids": [one.job.id for one in requests],
        }
        async with borrowed(self._pool) as connection:
            rows = await (await connection.execute(_PARENTS, parameters)).fetchall()
        return {
            places[n - 1]: _Parent(
                job_no=job_no,
                state=JobState(state),
                correlation_id=correlation_id,
                depth=depth,
                token=tokens[n - 1],
                child_is_ours=parent_id == requests[n - 1].parent_id,
            )
            for n, job_no, state, correlation_id, depth, parent_id in rows
        }

    async def _store(
        self, new: Mapping[int, SpawnRequest], found: Mapping[int, _Parent]
    ) -> dict[int, Submitted]:
        jobs = [
            replace(one.job, correlation_id=one.job.correlation_id or found[n].correlation_id)
            for n, one in new.items()
        ]
        guard = _Guard({(one.namespace, one.job.id): found[n] for n, one in new.items()})
        stored = await self._submission.store(jobs, atomic=False, named=False, guard=guard)
        return {
            n: replace(answer, error=answer.error and unplaced(answer.error))
            for n, answer in zip(new, stored, strict=True)
        }


def _different(requests: Mapping[int, SpawnRequest]) -> list[dict[int, SpawnRequest]]:
    groups: list[dict[int, SpawnRequest]] = []
    turns: dict[_Name, int] = {}
    for n, request in requests.items():
        name = request.namespace, request.job.id
        turn = turns.get(name, 0)
        turns[name] = turn + 1
        if turn == len(groups):
            groups.append({})
        groups[turn][n] = request
    return groups


def _answer(request: SpawnRequest, parent: _Parent | None) -> Submitted | None:
    """What is known without storing anything."""
    job_id = request.job.id
    if parent is None:
        return Submitted(job_id=job_id, error=StaleLease(request.parent_id))
    if parent.state is JobState.CANCELLING:
        error = InvalidTransition(request.parent_id, parent.state, SPAWN)
        return Submitted(job_id=job_id, error=error)
    if parent.child_is_ours:
        return Submitted(job_id=job_id, duplicate=True)
    deep = request.too_deep(parent.depth)
    return None if deep is None else Submitted(job_id=job_id, error=deep)
