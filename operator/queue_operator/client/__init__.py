"""Clients of the queue for programs that submit and watch jobs.

Over REST, typed, sync and async:

>>> with QueueClient("http://queue-operator:8080", token=file_token("/var/run/token")) as queue:
...     result = queue.submit(Submission(type="send-email", payload={"to": "a@example.com"}))

Over gRPC, the queue's own calls and streams of jobs: `queue_operator.client.grpc`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from queue_operator.backends.lookups import SearchOrder
    from queue_operator.backends.statistics import Breakdown
    from queue_operator.client.asynchronous import AsyncQueueClient
    from queue_operator.client.credentials import file_token
    from queue_operator.client.events import JobEvent
    from queue_operator.client.flows import QuotaWait
    from queue_operator.client.messages import (
        WebhookList,
        WebhookMessage,
        WebhookPurgeResult,
        WebhookRedeliveryResult,
    )
    from queue_operator.client.models import (
        Access,
        BatchCancellationResult,
        BatchDeletionResult,
        BatchResult,
        BatchRetryResult,
        CancellationResult,
        FailingTypes,
        FailureDetails,
        FailureSearchResult,
        JobExplanation,
        JobLog,
        JobSearchResult,
        JobStatus,
        LostWorker,
        Pause,
        QueueStats,
        RetryResult,
        StatsSeries,
        SubmissionResult,
        SuspensionResult,
        Verdict,
        WaitingJob,
        Worker,
        WorkerList,
    )
    from queue_operator.client.protocol import ServerError
    from queue_operator.client.requests import (
        Backoff,
        FailureFilter,
        FailureSearch,
        JobFilter,
        JobSearch,
        Pagination,
        Submission,
        TimeRange,
    )
    from queue_operator.client.retrying import RetryPolicy
    from queue_operator.client.synchronous import QueueClient
    from queue_operator.domain.dependencies import DependencyMode
    from queue_operator.domain.ordering import Priority
    from queue_operator.domain.outcome import ErrorCategory
    from queue_operator.domain.retry import BackoffStrategy
    from queue_operator.domain.views import Phase

# Imported when asked for: REST needs httpx, which the gRPC client is to work without.
_HOMES: Final = {
    "Access": "models",
    "AsyncQueueClient": "asynchronous",
    "Backoff": "requests",
    "BackoffStrategy": "requests",
    "BatchCancellationResult": "models",
    "BatchDeletionResult": "models",
    "BatchResult": "models",
    "BatchRetryResult": "models",
    "Breakdown": "operations",
    "CancellationResult": "models",
    "DependencyMode": "requests",
    "ErrorCategory": "requests",
    "FailingTypes": "models",
    "FailureDetails": "models",
    "FailureFilter": "requests",
    "FailureSearch": "requests",
    "FailureSearchResult": "models",
    "JobEvent": "events",
    "JobExplanation": "models",
    "JobFilter": "requests",
    "JobLog": "models",
    "JobSearch": "requests",
    "JobSearchResult": "models",
    "JobStatus": "models",
    "LostWorker": "models",
    "Pagination": "requests",
    "Pause": "models",
    "Phase": "requests",
    "Priority": "requests",
    "QueueClient": "synchronous",
    "QueueStats": "models",
    "QuotaWait": "flows",
    "RetryPolicy": "retrying",
    "RetryResult": "models",
    "SearchOrder": "requests",
    "ServerError": "protocol",
    "StatsSeries": "models",
    "Submission": "requests",
    "SubmissionResult": "models",
    "SuspensionResult": "models",
    "TimeRange": "requests",
    "Verdict": "models",
    "WaitingJob": "models",
    "WebhookList": "messages",
    "WebhookMessage": "messages",
    "WebhookPurgeResult": "messages",
    "WebhookRedeliveryResult": "messages",
    "Worker": "models",
    "WorkerList": "models",
    "file_token": "credentials",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


__all__ = [
    "Access",
    "AsyncQueueClient",
    "Backoff",
    "BackoffStrategy",
    "BatchCancellationResult",
    "BatchDeletionResult",
    "BatchResult",
    "BatchRetryResult",
    "Breakdown",
    "CancellationResult",
    "DependencyMode",
    "ErrorCategory",
    "FailingTypes",
    "FailureDetails",
    "FailureFilter",
    "FailureSearch",
    "FailureSearchResult",
    "JobEvent",
    "JobExplanation",
    "JobFilter",
    "JobLog",
    "JobSearch",
    "JobSearchResult",
    "JobStatus",
    "LostWorker",
    "Pagination",
    "Pause",
    "Phase",
    "Priority",
    "QueueClient",
    "QueueStats",
    "QuotaWait",
    "RetryPolicy",
    "RetryResult",
    "SearchOrder",
    "ServerError",
    "StatsSeries",
    "Submission",
    "SubmissionResult",
    "SuspensionResult",
    "TimeRange",
    "Verdict",
    "WaitingJob",
    "WebhookList",
    "WebhookMessage",
    "WebhookPurgeResult",
    "WebhookRedeliveryResult",
    "Worker",
    "WorkerList",
    "file_token",
]
