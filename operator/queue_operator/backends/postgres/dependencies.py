"""Edges between jobs: who waits for whom, and how the parents ended."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from queue_operator.backends.sql import load
from queue_operator.domain.dependencies import DependencyMode, Wait, wait_for
from queue_operator.domain.states import TERMINAL, JobState

_CHILDREN: Final = load(__package__, "dependency_children")
_EDGES: Final = load(__package__, "dependency_edges")
_SETTLE: Final = load(__package__, "dependency_settle", arrived=load(__package__, "arrival_tell"))
_LINK: Final = load(__package__, "dependency_link")


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """One parent in a child's list; `outcome` is None until the parent has ended."""

    parent_no: int
    parent_id: str
    outcome: JobState | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Child:
    """A job that waits for others, with its edges in the order of its list."""

    job_no: int
    mode: DependencyMode
    edges: tuple[Edge, ...]

    @property
    def wait(self) -> Wait:
        """What the job does next."""
        # Any state that does not end a job stands for those that have not ended.
        states = [edge.outcome or JobState.INITIAL_PENDING for edge in self.edges]
        return wait_for(self.mode, states)

    @property
    def giver(self) -> int | None:
        """The parent whose output the job inherits, once there is one."""
        last = self.edges[-1]
        chained = self.mode is DependencyMode.CHAIN and last.outcome is JobState.COMPLETED
        return last.parent_no if chained else None

    @property
    def obstacle(self) -> str:
        """Why the job can never run, in words."""
        failed = [e for e in self.edges if e.outcome not in (None, JobState.COMPLETED)]
        return f"parent {failed[0].parent_id!r} ended as {failed[0].outcome}" if failed else ""


def outcome_of(state: JobState) -> JobState | None:
    return state if state in TERMINAL else None


def _stored(outcome: JobState | None) -> str | None:
    return None if outcome is None else outcome.value


async def find_waiting(
    connection: AsyncConnection[TupleRow], parents: Collection[int]
) -> tuple[set[int], set[int]]:
    """The children that wait for some parents: those that are locked now, and those that are in
    the hands of other transactions.
    """
    cursor = await connection.execute(_CHILDREN, {"parents": list(parents)})
    found: dict[bool, set[int]] = {False: set(), True: set()}
    for number, locked in await cursor.fetchall():
        found[locked].add(number)
    return found[True], found[False] - found[True]


async def read_children(
    connection: AsyncConnection[TupleRow],
    numbers: Collection[int],
    outcomes: Mapping[int, JobState | None],
) -> list[Child]:
    """Children that are locked, with the new `outcomes` of some parents (None: it runs again)
    in their edges.
    """
    cursor = await connection.execute(_EDGES, {"children": sorted(numbers)})
    modes: dict[int, DependencyMode] = {}
    edges: dict[int, list[Edge]] = {}
    for child_no, parent_no, parent_id, stored, mode in await cursor.fetchall():
        known = JobState(stored) if stored else None
        outcome = outcomes.get(parent_no, known)
        edges.setdefault(child_no, []).append(
            Edge(parent_no=parent_no, parent_id=parent_id, outcome=outcome)
        )
        modes[child_no] = DependencyMode(mode)
    return [Child(job_no=n, mode=modes[n], edges=tuple(edges[n])) for n in edges]


async def let_go(
    connection: AsyncConnection[TupleRow],
    children: Sequence[Child],
    outcomes: Mapping[int, JobState | None],
) -> list[int]:
    """Writes what became of some parents into their edges to `children`, and makes those
    eligible that need not wait any longer. Gives their lanes.
    """
    heirs = {child.job_no: child.giver for child in children if child.giver in outcomes}
    parameters = {
        "children": [child.job_no for child in children],
        "parents": list(outcomes),
        "outcomes": [_stored(outcome) for outcome in outcomes.values()],
        "released": [child.job_no for child in children if child.wait is Wait.RUN],
        "heirs": list(heirs),
        "givers": list(heirs.values()),
    }
    cursor = await connection.execute(_SETTLE, parameters)
    return [lane_id for (lane_id,) in await cursor.fetchall()]


async def link(
    connection: AsyncConnection[TupleRow], children: Iterable[Child], marks: Collection[int]
) -> None:
    """Stores the edges of new jobs. `marks` are the parents, stored before, whose outcome may
    still come or change; their rows are locked.
    """
    listed = list(children)
    edges = [(child, place, e) for child in listed for place, e in enumerate(child.edges)]
    heirs = {child.job_no: child.giver for child in listed if child.giver is not None}
    parameters = {
        "parents": [edge.parent_no for _, _, edge in edges],
        "children": [child.job_no for child, _, _ in edges],
        "places": [place for _, place, _ in edges],
        "parent_ids": [edge.parent_id for _, _, edge in edges],
        "outcomes": [_stored(edge.outcome) for _, _, edge in edges],
        "marks": sorted(marks),
        "heirs": list(heirs),
        "givers": list(heirs.values()),
    }
    await connection.execute(_LINK, parameters)
