"""The operations under /v1, by subject."""

from typing import Any, Final

from queue_operator.api.operation import Operation
from queue_operator.api.routes import (
    bulk,
    changing,
    events,
    failures,
    pauses,
    reading,
    searching,
    statistics,
    submitting,
    watching,
    webhooks,
)

OPERATIONS: Final[tuple[Operation[Any], ...]] = (
    *submitting.OPERATIONS,
    *searching.OPERATIONS,
    *bulk.OPERATIONS,
    *reading.DETAILS,
    *changing.DETAILS,
    *reading.OPERATIONS,
    *changing.OPERATIONS,
    *failures.OPERATIONS,
    *statistics.OPERATIONS,
    *pauses.OPERATIONS,
    *watching.OPERATIONS,
    *webhooks.OPERATIONS,
    *events.OPERATIONS,
)
