"""Progress of running attempts, kept beside the lease and shown while it is there."""

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from queue_operator.backends.postgres.connection import Pool, borrowed
from queue_operator.backends.protocol import ProgressReport
from queue_operator.backends.sql import load
from queue_operator.domain.storable import without_unstorable

_RECORD: Final = load(__package__, "progress_record")


class ProgressStore:
    """The protocol `ProgressSink`."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def record_progress(self, reports: Sequence[ProgressReport]) -> None:
        """Stores the newest report per job in one statement. Those whose token is not the
        current one, or that are older than what is stored, change nothing.
        """
        newest: dict[tuple[str, str, UUID], ProgressReport] = {}
        for report in sorted(reports, key=lambda report: report.progress.updated_at):
            token = _parsed(report.token)
            if token is not None:
                newest[report.namespace, report.job_id, token] = report
        if not newest:
            return
        progress = [report.progress for report in newest.values()]
        parameters = {
            "namespaces": [namespace for namespace, _, _ in newest],
            "job_ids": [job_id for _, job_id, _ in newest],
            "tokens": [token for _, _, token in newest],
            "percents": [one.percent for one in progress],
            "messages": [without_unstorable(one.message) for one in progress],
            "updated_ats": [one.updated_at for one in progress],
        }
        async with borrowed(self._pool) as connection:
            await connection.execute(_RECORD, parameters)


def _parsed(token: str) -> UUID | None:
    try:
        return UUID(token)
    except ValueError:
        return None
