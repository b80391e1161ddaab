"""What every operation needs: the jobs, who may touch them, and the limits."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

import anyio

from queue_operator.auth.audit import Audit
from queue_operator.auth.protocol import Authenticator, Authorizer
from queue_operator.domain.validation import Limits
from queue_operator.queue.hub import EventHub
from queue_operator.queue.operations import JobOperations
from queue_operator.queue.watching import Watch
from queue_operator.settings import Settings
from queue_operator.tracing.off import OFF
from queue_operator.tracing.protocol import Tracing


@dataclass(frozen=True, slots=True)
class Services:
    """`now` is used for views only. `parsing` admits one large body or result at a time.
    `events` is None where the store keeps no log that can be followed; ours all do.
    """

    jobs: JobOperations
    watch: Watch
    authenticator: Authenticator
    authorizer: Authorizer
    audit: Audit
    settings: Settings
    limits: Limits
    now: Callable[[], datetime]
    new_id: Callable[[], str]
    parsing: anyio.CapacityLimiter
    tracing: Tracing = OFF
    events: EventHub | None = None

    @property
    def json_depth(self) -> int:
        """The deepest nesting of a payload."""
        return self.settings.limits.json_depth
