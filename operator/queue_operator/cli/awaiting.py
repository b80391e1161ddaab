"""To wait for a job in front of a person: after a while they are told what it waits for."""

from datetime import timedelta
from typing import Final

from queue_operator.cli import rendering
from queue_operator.cli.connection import Remote
from queue_operator.client import JobStatus, QueueClient

QUIET_S: Final = 5.0
"""So long a wait needs no explanation."""


def until_ended(
    remote: Remote, queue: QueueClient, job_id: str, timeout: timedelta | None
) -> JobStatus:
    """The job once it has ended. Raises TimeoutError after `timeout`, with the state it is in."""
    timeout_s = None if timeout is None else timeout.total_seconds()
    if timeout_s is not None and timeout_s <= QUIET_S:
        return queue.wait(job_id, timeout_s=timeout_s, namespace=remote.namespace)
    try:
        return queue.wait(job_id, timeout_s=QUIET_S, namespace=remote.namespace)
    except TimeoutError:
        told = queue.explain(job_id, namespace=remote.namespace)
        rendering.note(f"{job_id} has not ended yet: {told.message}")
    left_s = None if timeout_s is None else timeout_s - QUIET_S
    try:
        return queue.wait(job_id, timeout_s=left_s, namespace=remote.namespace)
    except TimeoutError as error:
        state = str(error).rpartition(": ")[2]
        told_at_last = f"job {job_id!r} has not ended within {timeout_s:g} s: {state}"
        raise TimeoutError(told_at_last) from None
