"""Leases: who may speak for a running job, and until when."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

DEFAULT_LEASE_TTL_S: Final = 5.0
HEARTBEATS_PER_TTL: Final = 3
"""A worker renews its leases this many times per TTL."""


def heartbeat_interval_s(lease_ttl_s: float) -> float:
    return lease_ttl_s / HEARTBEATS_PER_TTL


@dataclass(frozen=True, slots=True)
class Held:
    """A job that a worker says it still runs, under the token it got; `assignee_id` as in
    Outcome.
    """

    job_id: str
    token: str
    namespace: str = "default"
    assignee_id: str | None = None


class LeaseStatus(StrEnum):
    """The queue's answer about one held job."""

    CURRENT = "CURRENT"
    """Renewed."""
    LOST = "LOST"
    """Expired, claimed by nobody yet: go on and report, the token still counts."""
    TAKEN_OVER = "TAKEN_OVER"
    """Somebody claimed it since: stop, and do not send the outcome."""
    ENDED = "ENDED"
    """Cancelled, timed out or gone: interrupt the handler."""


@dataclass(frozen=True, slots=True)
class LeaseAnswer:
    """`cancel_requested` and `cancel_forced` tell of a cancel the worker may have missed."""

    job_id: str
    token: str
    namespace: str
    status: LeaseStatus
    cancel_requested: bool = False
    cancel_forced: bool = False


@dataclass(frozen=True, slots=True)
class Leased:
    """A RUNNING or CANCELLING job as the store has it. `host` is what the demand said."""

    job_id: str
    namespace: str
    assignee_id: str
    token: str
    type: str
    host: str = ""


@dataclass(frozen=True, slots=True)
class Lost:
    """A job whose lease the sweeper found expired, and the assignee that had it."""

    job_id: str
    namespace: str
    assignee_id: str
