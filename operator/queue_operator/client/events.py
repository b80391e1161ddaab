"""What streams tell."""

from datetime import datetime
from typing import Final

from queue_operator.client.models import FINISHED, Received
from queue_operator.domain.views import Phase

SILENCE_S: Final = 45.0
"""After so long without a word a stream is taken for dead: the server says something every 15 s."""
RETRY_S: Final = 1.0
"""A server that ends has many readers, who should not all come back at once."""
NOW_ON: Final = "what comes next is told from now on"


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
