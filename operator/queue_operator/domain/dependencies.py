"""When a job that waits for others may run, and when it never can."""

from collections.abc import Mapping, Sequence
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


def find_cycle(parents: Mapping[str, Sequence[str]]) -> str | None:
    """An id of the batch that, through the batch, waits for itself; None when none does.

    `parents` maps each id of a batch to the ids it depends on. Ids outside the batch were
    stored before, so they cannot wait for one inside.
    """
    done: set[str] = set()
    for start in parents:
        path: dict[str, None] = {}
        stack = [(start, iter(parents[start]))]
        while stack:
            job_id, left = stack[-1]
            path[job_id] = None
            step = next((p for p in left if p in parents and p not in done), None)
            if step is None:
                done.add(job_id)
                path.pop(job_id)
                stack.pop()
            elif step in path:
                return step
            else:
                stack.append((step, iter(parents[step])))
    return None
