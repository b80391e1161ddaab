"""Cancel requests for running jobs, whichever process they were made in."""

from collections.abc import Collection
from typing import Final

from queue_operator.backends.postgres.connection import Pool, borrowed
from queue_operator.backends.sql import load
from queue_operator.domain.job import Cancelled, CancelRequest

_PENDING: Final = load(__package__, "cancel_pending")


class CancelInboxStore:
    """The protocol `CancelInbox`."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def pending_cancels(self, assignee_ids: Collection[str]) -> Cancelled:
        """The longest waiting first. The same request is given until its job has stopped."""
        if not assignee_ids:
            return Cancelled()
        parameters = {"assignee_ids": list(assignee_ids)}
        async with borrowed(self._pool) as connection:
            rows = await (await connection.execute(_PENDING, parameters)).fetchall()
        return Cancelled(
            requests=tuple(
                CancelRequest(job_id, namespace, assignee_id, str(token), force, reason)
                for job_id, namespace, assignee_id, token, force, reason in rows
            )
        )
