"""When a job that waits for others may run, and when it never can."""

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum

from queue_operator.domain.states import TERMINAL, JobState


class DependencyMode(StrEnum):
    """`dependency_mode` of `external-api.md` section 1."""

    AFTER = "AFTER"
    """Runs once all parents are COMPLETED."""
    AFTER_ANY = "AFTER_ANY"
    """Runs once one parent is COMPLETED."""
    CHAIN = "CHAIN"
    """As AFTER, and the last listed parent's output is handed to the job."""


class Wait(StrEnum):
    """What a job that depends on others does next."""

    WAIT = "WAIT"
    RUN = "RUN"
    SKIP = "SKIP"


def wait_for(mode: DependencyMode, parents: Sequence[JobState]) -> Wait:
    """What follows from the states of all parents; a job without parents runs."""
    done = [state is JobState.COMPLETED for state in parents]
    failed = [state in TERMINAL and not ok for state, ok in zip(parents, done, strict=True)]
    if mode is DependencyMode.AFTER_ANY:
        if any(done) or not parents:
            return Wait.RUN
        return Wait.SKIP if all(failed) else Wait.WAIT
    if all(done):
        return Wait.RUN
    return Wait.SKIP if any(failed) else Wait.WAIT


def on_circles(parents: Mapping[str, Sequence[str]]) -> set[str]:
    """The ids of a batch that, through the batch, wait for themselves: in one pass, however many
    circles there are (the strongly connected components of Tarjan).

    `parents` maps each id of a batch to the ids it depends on. Ids outside the batch were
    stored before, so they cannot wait for one inside.
    """
    search = _Search(parents)
    for start in parents:
        if start not in search.number:
            search.from_(start)
    return search.found


class _Search:
    """`number` is in the order in which jobs are come upon, `lowest` that of the earliest job that
    is still `open` and can be reached.
    """

    def __init__(self, parents: Mapping[str, Sequence[str]]) -> None:
        self._parents = parents
        self.number: dict[str, int] = {}
        self._lowest: dict[str, int] = {}
        self._open: dict[str, None] = {}
        self.found: set[str] = set()

    def from_(self, start: str) -> None:
        path = [self._enter(start)]
        while path:
            job_id, left = path[-1]
            step = next((one for one in left if self._leads_on(one)), None)
            if step is None:
                path.pop()
                if path:
                    self._reach(path[-1][0], self._lowest[job_id])
                self._leave(job_id)
            elif step in self.number:
                self._reach(job_id, self.number[step])
            else:
                path.append(self._enter(step))

    def _enter(self, job_id: str) -> tuple[str, Iterator[str]]:
        self.number[job_id] = self._lowest[job_id] = len(self.number)
        self._open[job_id] = None
        return job_id, iter(self._parents[job_id])

    def _leads_on(self, parent: str) -> bool:
        return parent in self._parents and (parent not in self.number or parent in self._open)

    def _reach(self, job_id: str, number: int) -> None:
        self._lowest[job_id] = min(self._lowest[job_id], number)

    def _leave(self, job_id: str) -> None:
        if self._lowest[job_id] != self.number[job_id]:
            return
        circle = [job_id]
        while (one := self._open.popitem()[0]) != job_id:
            circle.append(one)
        if len(circle) > 1:
            self.found.update(circle)
