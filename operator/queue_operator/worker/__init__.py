"""The worker SDK: write handlers, run them with `queue-worker MODULE:ATTRIBUTE`."""

from queue_operator.worker.context import Cancellation, JobContext, WorkerIdentity
from queue_operator.worker.errors import (
    Cancelled,
    InvalidHandler,
    InvalidSettings,
    PermanentError,
    Retry,
    SessionEnded,
    SessionRefused,
)
from queue_operator.worker.handlers import RegistrationResult, RegistrationStatus
from queue_operator.worker.settings import WorkerSettings
from queue_operator.worker.worker import Worker

__all__ = [
    "Cancellation",
    "Cancelled",
    "InvalidHandler",
    "InvalidSettings",
    "JobContext",
    "PermanentError",
    "RegistrationResult",
    "RegistrationStatus",
    "Retry",
    "SessionEnded",
    "SessionRefused",
    "Worker",
    "WorkerIdentity",
    "WorkerSettings",
]
