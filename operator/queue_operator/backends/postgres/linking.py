"""New jobs that wait for others: their parents found, locked and told."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from queue_operator.backends.postgres.batch import Batch
from queue_operator.backends.postgres.connection import LONG_S
from queue_operator.backends.postgres.consequences import carry_out, skip
from queue_operator.backends.postgres.dependencies import Child, Edge, link, outcome_of
from queue_operator.backends.postgres.idempotency import Keys
from queue_operator.backends.postgres.rows import LockedRow, Terms, lock_rows
from queue_operator.backends.sql import load
from queue_operator.domain.batch import no_parent
from queue_operator.domain.dependencies import Wait
from queue_operator.domain.errors import InvalidArgument
from queue_operator.domain.states import JobState

_FIND: Final = load(__package__, "find_numbers")

_NOBODY: Final = -1
# A submission knows from its start how large it is, and takes its time.
_TERMS: Final = Terms(patience_s=LONG_S)

_Name = tuple[int, str]


@dataclass(frozen=True, slots=True)
class Links:
    """The children of a batch with their edges, the parents among the batch and among the
    stored (`marks`), by number; `errors` by index. Those of `unsure` lack a job of the batch
    that is not stored as things stand.
    """

    children: Collection[Child] = ()
    parents: Collection[int] = ()
    marks: Collection[int] = ()
    errors: Mapping[int, InvalidArgument] = field(default_factory=dict)
    unsure: Collection[int] = ()

    @property
    def blocked(self) -> set[int]:
        """Children that cannot run at once."""
        return {child.job_no for child in self.children if child.wait is not Wait.RUN}


async def find_links(
    connection: AsyncConnection[TupleRow], batch: Batch, new: Collection[int], keys: Keys
) -> Links:
    """Finds and locks the parents of the `new` jobs of a batch, so that none ends, or leaves
    the database, before their edges are stored.
    """
    own = {(batch.namespaces[n], batch.jobs[n].id): batch.numbers[n] for n in new}
    known: dict[_Name, int] = dict(own)
    # A parent that repeats another submission is the job that stands for it.
    for n, holder in keys.repeats.items():
        known[batch.namespaces[n], batch.jobs[n].id] = holder.job_no
    known |= await _find_stored(connection, batch, new, known)
    inside = set(own.values())
    waited_for = {
        known[batch.namespaces[n], parent]
        for n in new
        for parent in batch.jobs[n].depends_on
        if (batch.namespaces[n], parent) in known
    }
    stored = await lock_rows(connection, dict.fromkeys(waited_for - inside), _TERMS)
    return _links(batch, new, known, inside & waited_for, stored)


async def _find_stored(
    connection: AsyncConnection[TupleRow],
    batch: Batch,
    new: Collection[int],
    known: Mapping[_Name, object],
) -> dict[_Name, int]:
    names = {
        (batch.namespaces[n], parent): None for n in new for parent in batch.jobs[n].depends_on
    }
    wanted = [name for name in names if name not in known]
    if not wanted:
        return {}
    parameters = {"namespaces": [ns for ns, _ in wanted], "ids": [job_id for _, job_id in wanted]}
    cursor = await connection.execute(_FIND, parameters)
    return {wanted[place - 1]: number for place, number in await cursor.fetchall()}


def _links(
    batch: Batch,
    new: Collection[int],
    known: Mapping[_Name, int],
    inside: Collection[int],
    stored: Mapping[int, LockedRow],
) -> Links:
    children: list[Child] = []
    errors: dict[int, InvalidArgument] = {}
    unsure: set[int] = set()
    names = {(space, job.id) for space, job in zip(batch.namespaces, batch.jobs, strict=True)}
    for n in new:
        job = batch.jobs[n]
        edges: list[Edge] = []
        for place, parent in enumerate(job.depends_on):
            number = known.get((batch.namespaces[n], parent), _NOBODY)
            if number not in inside and number not in stored:
                errors[n] = no_parent(batch.field(n, ""), place, parent)
                if (batch.namespaces[n], parent) in names:
                    unsure.add(n)
                break
            outcome = outcome_of(stored[number].current.state) if number in stored else None
            edges.append(Edge(parent_no=number, parent_id=parent, outcome=outcome))
        else:
            if edges:
                number = batch.numbers[n]
                children.append(Child(job_no=number, mode=job.dependency_mode, edges=tuple(edges)))
    # A job that is COMPLETED never changes again.
    marks = [no for no, row in stored.items() if row.current.state is not JobState.COMPLETED]
    return Links(children, inside, marks, errors, unsure)


async def store_links(connection: AsyncConnection[TupleRow], links: Links) -> None:
    """Stores the edges of jobs that have just been stored, and SKIPs those that never run."""
    await link(connection, links.children, links.marks)
    hopeless = [child for child in links.children if child.wait is Wait.SKIP]
    await carry_out(connection, await skip(connection, hopeless, _TERMS), _TERMS)
