"""What keeps every connected worker from taking a job, in a sentence that says what to change."""

import difflib
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from queue_operator.backends.protocol import WorkerSession
from queue_operator.domain.job import Job
from queue_operator.domain.tags import matches

_NAMED: Final = 3
"""Types, or sets of tags, that a sentence names."""


def why_nobody_takes(job: Job, sessions: Iterable[WorkerSession]) -> str:
    """Of a job that none of `sessions` takes. Only workers of the job's namespace count."""
    mine = [session for session in sessions if session.namespace == job.namespace]
    if not mine:
        return f"no worker is connected in namespace {job.namespace}"
    handling = [session for session in mine if not session.types or job.type in session.types]
    if not handling:
        return _no_such_type(job.type, mine)
    fitting = [session for session in handling if matches(session.tags, job.tags)]
    if fitting:
        # Only that they drain keeps them.
        return _workers(fitting, "would take the job, but drains", "would take the job, but drain")
    return _wrong_tags(job, handling)


def _no_such_type(kind: str, sessions: Sequence[WorkerSession]) -> str:
    known = sorted(set().union(*(session.types for session in sessions)))
    near = difflib.get_close_matches(kind, known, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    there = _workers(sessions, "is connected", "are connected")
    return f"no worker handles {kind}: {there}, for {_listed(known)}{hint}"


def _wrong_tags(job: Job, sessions: Sequence[WorkerSession]) -> str:
    lacking = Counter(",".join(sorted(session.tags - job.tags)) for session in sessions)
    who = _workers(sessions, f"handles {job.type}", f"handle {job.type}")
    carried = f"it carries {','.join(sorted(job.tags))}" if job.tags else "it has no tags"
    if len(lacking) == 1:
        (tags,) = lacking
        verb = "demands" if len(sessions) == 1 else "demand"
        return f"{who}, but {verb} {tags}, which the job lacks ({carried})"
    several = _listed([f"{tags} ({count})" for tags, count in lacking.most_common()])
    return f"{who}, but each demands tags that the job lacks ({carried}): {several}"


def _workers(sessions: Sequence[WorkerSession], one: str, many: str) -> str:
    return f"1 worker {one}" if len(sessions) == 1 else f"{len(sessions)} workers {many}"


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
