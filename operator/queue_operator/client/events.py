"""What streams tell."""

from datetime import datetime

from queue_operator.client.models import FINISHED, Received
from queue_operator.domain.views import Phase


class JobEvent(Received):
    """What happened to a job, as a stream tells it: `event`, after which the job is `status`.
    `position` is where a stream goes on that is opened after it.
    """

    job_id: str
    namespace: str
    type: str
    status: Phase
    state: str | None = None
    event: str = ""
    attempt: int = 0
    at: datetime | None = None
    position: str = ""

    @property
    def is_finished(self) -> bool:
        """Whether the job has ended; only a manual retry changes that."""
        return self.status in FINISHED
