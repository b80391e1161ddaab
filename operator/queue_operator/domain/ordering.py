"""The order in which eligible jobs are claimed: oldest first, shifted by priority."""

from datetime import datetime, timedelta
from enum import StrEnum


class Priority(StrEnum):
    """`priority` of `external-api.md` section 1."""

    CRITICAL = "CRITICAL"
    HIGH = "HIGH"
    NORMAL = "NORMAL"
    LOW = "LOW"
    BULK = "BULK"


PRIORITY_BONUS: dict[Priority, timedelta] = {
    Priority.CRITICAL: timedelta(hours=24),
    Priority.HIGH: timedelta(hours=1),
    Priority.NORMAL: timedelta(0),
    Priority.LOW: timedelta(hours=-1),
    Priority.BULK: timedelta(hours=-24),
}
"""How much older a job of this priority counts. Nothing starves: age always wins in the end."""


def order_time(
    created_at: datetime, last_retry_at: datetime | None, priority: Priority
) -> datetime:
    """The sort key of a claim: COALESCE(last_retry_at, created_at) minus the bonus."""
    return (last_retry_at or created_at) - PRIORITY_BONUS[priority]
