"""What the code that runs now is about: read by whoever writes it down, log lines and traces.

Each is a context variable, so tasks and threads that were given a copy of the context know it too.
"""

from contextvars import ContextVar
from typing import Final, NamedTuple


class JobMark(NamedTuple):
    """A job and its attempt, 0 where no attempt is meant."""

    namespace: str
    job_id: str
    attempt: int = 0


JOB: Final[ContextVar[JobMark | None]] = ContextVar("queue_operator_job", default=None)
WORKER: Final[ContextVar[str]] = ContextVar("queue_operator_worker", default="")
"""The name of the worker that runs here, or with which a server speaks."""
TRACE_ID: Final[ContextVar[str]] = ContextVar("queue_operator_trace_id", default="")
"""In 32 hexadecimal digits, as W3C writes it; empty without a trace."""


def about(namespace: str, job_id: str) -> dict[str, object]:
    """`extra` of a log line that is about this job, from code that runs for many."""
    return {"about": {"namespace": namespace, "job_id": job_id}}


def known() -> dict[str, object]:
    """What is known here, by the names that log lines give it."""
    found: dict[str, object] = {}
    if worker := WORKER.get():
        found["worker"] = worker
    if (job := JOB.get()) is not None:
        found |= {"namespace": job.namespace, "job_id": job.job_id}
        if job.attempt:
            found["attempt"] = job.attempt
    if trace_id := TRACE_ID.get():
        found["trace_id"] = trace_id
    return found
