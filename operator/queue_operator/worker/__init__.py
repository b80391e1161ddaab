"""The worker SDK: write handlers, run them with `queue-worker run MODULE:WORKER`."""

from queue_operator.client.requests import Backoff, Submission
from queue_operator.domain.dependencies import DependencyMode
from queue_operator.domain.errors import (
    InvalidArgument,
    PayloadTooLarge,
    QuotaExceeded,
    StaleLease,
)
from queue_operator.domain.ordering import Priority
from queue_operator.domain.retry import BackoffStrategy
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
from queue_operator.worker.injection import Depends
from queue_operator.worker.middleware import CallNext, Middleware
from queue_operator.worker.settings import WorkerSettings
from queue_operator.worker.worker import Worker

__all__ = [
    "Backoff",
    "BackoffStrategy",
    "CallNext",
    "Cancellation",
    "Cancelled",
    "DependencyMode",
    "Depends",
    "InvalidArgument",
    "InvalidHandler",
    "InvalidSettings",
    "JobContext",
    "Middleware",
    "PayloadTooLarge",
    "PermanentError",
    "Priority",
    "QuotaExceeded",
    "RegistrationResult",
    "RegistrationStatus",
    "Retry",
    "SessionEnded",
    "SessionRefused",
    "StaleLease",
    "Submission",
    "Worker",
    "WorkerIdentity",
    "WorkerSettings",
]
