"""A typed client of the REST API, for programs that submit and watch jobs.

>>> with QueueClient("http://queue-operator:8080", token=file_token("/var/run/token")) as queue:
...     result = queue.submit(Submission(type="send-email", payload={"to": "a@example.com"}))
"""

from queue_operator.client.asynchronous import AsyncQueueClient
from queue_operator.client.credentials import file_token
from queue_operator.client.models import (
    Backoff,
    BatchResult,
    CancellationResult,
    JobStatus,
    QueueStats,
    Submission,
    SubmissionResult,
)
from queue_operator.client.retrying import RetryPolicy
from queue_operator.client.synchronous import QueueClient

__all__ = [
    "AsyncQueueClient",
    "Backoff",
    "BatchResult",
    "CancellationResult",
    "JobStatus",
    "QueueClient",
    "QueueStats",
    "RetryPolicy",
    "Submission",
    "SubmissionResult",
    "file_token",
]
