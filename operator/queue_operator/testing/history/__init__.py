"""Proof by history: what every process saw, beside what the store says, and rules over both.

Processes write what they see with a `Log`; `read_store` adds what the store knows; `check`
gives every broken promise, and `summarise` counts the rest.
"""

from queue_operator.testing.history.calls import digest
from queue_operator.testing.history.checker import check
from queue_operator.testing.history.client_recorder import record_client
from queue_operator.testing.history.history import History, StoredJob
from queue_operator.testing.history.queue_recorder import (
    record_host,
    record_queue,
    record_stream,
    record_usage,
)
from queue_operator.testing.history.records import Kind, Log, Record, read_logs
from queue_operator.testing.history.store import read_store
from queue_operator.testing.history.summary import Summary, summarise
from queue_operator.testing.history.takeover import Takeover, takeovers
from queue_operator.testing.history.violation import Rule, Violation
from queue_operator.testing.history.worker_recorder import record_session, recorded_handler

__all__ = [
    "History",
    "Kind",
    "Log",
    "Record",
    "Rule",
    "StoredJob",
    "Summary",
    "Takeover",
    "Violation",
    "check",
    "digest",
    "read_logs",
    "read_store",
    "record_client",
    "record_host",
    "record_queue",
    "record_session",
    "record_stream",
    "record_usage",
    "recorded_handler",
    "summarise",
    "takeovers",
]
