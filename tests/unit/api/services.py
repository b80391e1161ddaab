"""What operations need, without a queue behind it."""

from datetime import UTC, datetime
from typing import cast

import anyio

from queue_operator.api.services import Services
from queue_operator.auth.audit import Audit
from queue_operator.auth.open import AdministratorsOnly, OpenAuthenticator
from queue_operator.queue.operations import JobOperations
from queue_operator.queue.watching import Watch
from queue_operator.settings import LimitSettings, Settings

SETTINGS = Settings(limits=LimitSettings(payload_bytes=1000, batch_jobs=3))
SERVICES = Services(
    # Parsing never touches the jobs: any use of them would fail here.
    jobs=cast(JobOperations, None),
    watch=cast(Watch, None),
    authenticator=OpenAuthenticator(),
    authorizer=AdministratorsOnly(),
    audit=Audit(),
    settings=SETTINGS,
    limits=SETTINGS.limits.to_limits(),
    now=lambda: datetime.now(UTC),
    new_id=lambda: "made-id",
    parsing=anyio.CapacityLimiter(1),
)
