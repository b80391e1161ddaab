"""What the document shows of each operation: a request, and its answer."""

from typing import Any, Final

from queue_operator.backends.webhooks import MessageState
from queue_operator.domain.situation import Code, Level
from queue_operator.domain.states import JobState
from queue_operator.domain.views import Phase
from queue_operator.queue.explaining import WaitReason

_ID: Final = "0192f1d2-7a54-7cc3-9c3e-0d6f9a1b2c3d"
_AT: Final = "2026-01-15T10:30:00Z"
_LATER: Final = "2026-01-15T10:30:02.400000Z"

_END: Final = "event: end\ndata: {}\n\n"


def _stream(status: str, event: str) -> str:
    told = f'"job_id":"{_ID}","namespace":"default","type":"send-email","status":"{status}",'
    more = f'"state":"{status}","event":"{event}","attempt":1,"at":"{_LATER}"'
    return f"id: 5d41402a.2s.1k9.\nevent: job\ndata: {{{told}{more}}}\n\n"


_SUBMISSION: Final[dict[str, Any]] = {
    "type": "send-email",
    "payload": {"to": "ada@example.com", "template": "welcome"},
    "priority": "HIGH",
    "delay": "PT30S",
    "max_attempts": 5,
    "backoff": {"strategy": "EXPONENTIAL", "initial_delay": 2, "max_delay": "PT5M"},
    "idempotency_key": "welcome-4711",
    "tags": {"team": "growth"},
}
_ACCEPTED: Final[dict[str, Any]] = {
    "job_id": _ID,
    "status": "ACCEPTED",
    "state": Phase.DELAYED,
    "created_at": _AT,
    "scheduled_for": "2026-01-15T10:30:30Z",
}
_DUPLICATE: Final = {**_ACCEPTED, "status": "DUPLICATE", "existing_job_id": _ID}
_REJECTED: Final = {
    "job_id": None,
    "status": "REJECTED",
    "error": {
        "code": "INVALID_REQUEST",
        "message": "type: is required",
        "details": [{"field": "type", "code": "REQUIRED", "message": "is required"}],
    },
}
_STATUS: Final[dict[str, Any]] = {
    "job_id": _ID,
    "namespace": "default",
    "type": "send-email",
    "state": Phase.COMPLETED,
    "attempt": 1,
    "cancel_requested": False,
    "suspended": False,
    "reason": "COMPLETE",
    "created_at": _AT,
    "updated_at": _LATER,
    "scheduled_for": _AT,
    "started_at": "2026-01-15T10:30:01Z",
    "completed_at": _LATER,
    "priority": "HIGH",
    "tags": {"team": "growth"},
    "correlation_id": "",
}
_RESULT: Final[dict[str, Any]] = {
    "result": {
        "status": "SUCCESS",
        "output": {"message_id": "m-1"},
        "duration_ms": 1400,
        "attempt": 1,
    },
    "history": [
        {"from_state": None, "to_state": Phase.SCHEDULED, "timestamp": _AT, "reason": "SUBMIT"},
        {
            "from_state": Phase.SCHEDULED,
            "to_state": Phase.RUNNING,
            "timestamp": "2026-01-15T10:30:01Z",
            "reason": "CLAIM",
        },
        {
            "from_state": Phase.RUNNING,
            "to_state": Phase.COMPLETED,
            "timestamp": _LATER,
            "reason": "COMPLETE",
        },
    ],
}
_FAILURE: Final[dict[str, Any]] = {
    "attempt": 5,
    "timestamp": _LATER,
    "duration_ms": 1400,
    "category": "TEMPORARY",
    "code": "SMTP_TIMEOUT",
    "message": "the mail server did not answer",
    "stack_trace": "Traceback (most recent call last): ...",
    "context": {"server": "mx1"},
    "worker_id": "mailer-6d5f-x2x9z",
    "host": "10.244.0.7",
}
_DETAILS: Final[dict[str, Any]] = {
    "job_id": _ID,
    "type": "send-email",
    "state": Phase.DEAD_LETTER,
    "final_state": Phase.DEAD_LETTER,
    "total_attempts": 5,
    "failure": _FAILURE,
}
_ATTEMPTS: Final[list[dict[str, Any]]] = [
    {
        "attempt": 5,
        "started_at": "2026-01-15T10:30:01Z",
        "finished_at": _LATER,
        "result": "FAILURE",
        "worker_id": "mailer-6d5f-x2x9z",
        "host": "10.244.0.7",
        "failure": _FAILURE,
    }
]
_PAUSE: Final = {
    "namespace": "default",
    "type": "send-email",
    "reason": "mail server is down",
    "by": "ops",
    "since": _AT,
}
_CHANGED: Final = {"requested": 42, "skipped": 0, "failed": 0, "errors": [], "dry_run": False}
_LATENCY: Final = {"p50": "PT0.01S", "p90": "PT0.2S", "p99": "PT1.4S", "max": "PT3.2S"}
_COUNTS: Final = {
    "pending": 3,
    "running": 2,
    "completed": 118,
    "failed": 0,
    "dead_letter": 1,
    "cancelled": 0,
}
_WHY: Final[dict[str, Any]] = {
    "job_id": _ID,
    "state": Phase.SCHEDULED,
    "reason": WaitReason.PAUSED,
    "message": "the job's type is paused: mail server is down",
    "position": 17,
    "position_is_exact": True,
    "depends_on": [],
    "paused": [_PAUSE],
    "eligible_at": _AT,
    "workers": 2,
    "free_slots": 8,
}
_WAITING: Final[dict[str, Any]] = {
    **_STATUS,
    "state": Phase.SCHEDULED,
    "attempt": 0,
    "reason": "SUBMIT",
    "updated_at": _AT,
    "started_at": None,
    "completed_at": None,
}
_VERDICT: Final[dict[str, Any]] = {
    "namespace": "default",
    "type": None,
    "at": _AT,
    "level": Level.DEGRADED,
    "sentence": "Degraded: send-email fails: 40 of 50 attempts in 5 min, mostly SMTP_TIMEOUT.",
    "causes": [
        {
            "code": Code.FAILING,
            "level": Level.DEGRADED,
            "message": "send-email fails: 40 of 50 attempts in 5 min, mostly SMTP_TIMEOUT",
            "types": ["send-email"],
            "evidence": {"failed": 40, "attempts": 50, "code": "SMTP_TIMEOUT"},
            "next_step": "Look at the errors; pause the type while its cause is mended.",
            "command": "queue-operator failures --type send-email --namespace default",
            "runbook": "docs/runbooks/README.md#queueoperatortypefails",
        }
    ],
    "due": 12,
    "running": 4,
    "later": 40,
    "workers": 2,
    "slots": 8,
    "busy": 4,
}
_WORKER: Final[dict[str, Any]] = {
    "name": "mailer-6d5f-x2x9z",
    "session_id": "0192f1d2-8a11-7cc3-9c3e-0d6f9a1b2c3d",
    "host": "10.244.0.7",
    "version": "1.2.0",
    "replica": "queue-operator-0",
    "types": ["send-email"],
    "tags": ["team=growth"],
    "capacity": 4,
    "busy": 2,
    "draining": False,
    "connected_at": _AT,
    "heartbeat_at": _LATER,
}
_LOST_WORKER: Final[dict[str, Any]] = {
    "state": "LOST",
    "name": "mailer-6d5f-9kq4w",
    "session_id": "0192f1d2-8a11-7cc3-9c3e-0d6f9a1b2c3e",
    "host": "10.244.0.8",
    "version": "1.2.0",
    "types": ["send-email"],
    "capacity": 4,
    "jobs": 3,
    "lost_at": _AT,
}
_CLUSTER: Final[dict[str, Any]] = {
    "code": "SMTP_TIMEOUT",
    "category": "TEMPORARY",
    "shape": "the mail server <address> did not answer within <n> s",
    "count": 40,
    "newest_at": _LATER,
    "job_id": _ID,
    "message": "the mail server 10.0.0.9:25 did not answer within 30 s",
}
_POINT: Final[dict[str, Any]] = {
    "begins_at": _AT,
    "submitted": 52,
    "completed": 10,
    "failed": 0,
    "dead_letter": 1,
    "cancelled": 0,
    "attempts_failed": 40,
    "queue_latency": _LATENCY,
    "execution_time": _LATENCY,
}
MESSAGE_ID: Final = "msg_4711_0192f1d29b017cc39c3e0d6f9a1b2c3d"
_MESSAGE: Final[dict[str, Any]] = {
    "id": MESSAGE_ID,
    "namespace": "default",
    "job_id": _ID,
    "type": "send-email",
    "url": "https://example.com/jobs",
    "job_state": Phase.COMPLETED,
    "finalized_at": _LATER,
    "attempt": 1,
    "state": MessageState.FAILED,
    "tries": 9,
    "next_at": None,
    "last_at": "2026-01-16T10:30:02.400000Z",
    "last_status": 503,
    "last_error": "",
    "created_at": _LATER,
}

REQUESTS: Final[dict[str, dict[str, Any]]] = {
    "submitJob": _SUBMISSION,
    "submitBatch": {
        "jobs": [
            {"job_id": "extract-1", "type": "extract", "payload": {"day": "2026-01-15"}},
            {
                "type": "report",
                "payload": None,
                "depends_on": ["extract-1"],
                "dependency_type": "CHAIN",
            },
        ],
        "atomic": True,
    },
    "searchJobs": {
        "types": ["send-email"],
        "states": [Phase.RETRYING, Phase.DEAD_LETTER],
        "tags": {"team": "growth"},
        "created_after": _AT,
        "limit": 50,
        "order": "UPDATED_DESC",
    },
    "cancelJob": {"reason": "sent by hand", "force": False},
    "suspendJob": {},
    "resumeJob": {},
    "retryJob": {"reset_attempts": True, "delay": "PT1M"},
    "cancelJobs": {
        "filter": {"types": ["send-email"], "states": [Phase.DELAYED]},
        "reason": "campaign was stopped",
        "dry_run": True,
    },
    "retryJobs": {"filter": {"error_code": "SMTP_TIMEOUT"}, "reset_attempts": True},
    "deleteJobs": {"job_ids": ["report-2025-11"]},
    "searchFailures": {
        "states": [Phase.DEAD_LETTER],
        "failure_category": ["TEMPORARY", "TIMEOUT"],
        "time_range": {"after": _AT},
        "pagination": {"limit": 20},
    },
    "pause": {"type": "send-email", "reason": "mail server is down"},
    "redeliverWebhooks": {"state": "FAILED"},
    "purgeWebhooks": {"ids": ["msg_4712_0192f1d29b017cc39c3e0d6f9a1b2c3d"], "dry_run": True},
}
"""By operation."""

JOB_IDS: Final = {"deleteJob": "report-2025-12"}
"""Of operations on one job, where it is not the usual one: that one is still looked at."""
USUAL_JOB_ID: Final = _ID

ANSWERS: Final[dict[str, dict[int, dict[str, Any]]]] = {
    "submitJob": {201: _ACCEPTED, 200: _DUPLICATE},
    "submitBatch": {
        201: {"total": 1, "accepted": 1, "rejected": 0, "results": [_ACCEPTED]},
        200: {"total": 2, "accepted": 1, "rejected": 1, "results": [_ACCEPTED, _REJECTED]},
    },
    "getJob": {200: {**_STATUS, **_RESULT}},
    "listJobs": {
        200: {
            "jobs": [_STATUS],
            "total_count": 1,
            "total_is_exact": True,
            "next_cursor": None,
            "has_more": False,
        }
    },
    "explainJob": {200: _WHY},
    "getLog": {
        200: {
            "job_id": _ID,
            "attempts": [
                {
                    "attempt": 1,
                    "continued": False,
                    "dropped": 0,
                    "lines": [
                        {
                            "at": "2026-01-15T10:30:01.200000Z",
                            "level": "INFO",
                            "message": "sending",
                            "fields": {"to": "ada@example.com"},
                        }
                    ],
                }
            ],
            "next_cursor": "1.1",
        }
    },
    "getFailure": {200: {**_DETAILS, "attempts": _ATTEMPTS}},
    "cancelJob": {
        200: {
            "job_id": _ID,
            "status": "CANCEL_REQUESTED",
            "previous_state": Phase.RUNNING,
            "message": "the job is running; its handler is asked to stop",
        }
    },
    "suspendJob": {
        200: {
            "job_id": _ID,
            "state": Phase.SCHEDULED,
            "suspended": True,
            "message": "the job waits until it is resumed",
        }
    },
    "resumeJob": {
        200: {
            "job_id": _ID,
            "state": Phase.SCHEDULED,
            "suspended": False,
            "message": "the job is no longer suspended; `why` says what else it waits for",
        }
    },
    "retryJob": {
        200: {
            "job_id": _ID,
            "status": "QUEUED",
            "new_state": Phase.RETRYING,
            "scheduled_for": "2026-01-15T10:31:02.400000Z",
        }
    },
    "cancelJobs": {200: {**_CHANGED, "cancelled": 42, "dry_run": True, "has_more": False}},
    "retryJobs": {200: {**_CHANGED, "queued": 42, "has_more": False}},
    "deleteJobs": {200: {**_CHANGED, "requested": 1, "deleted": 1, "has_more": False}},
    "searchFailures": {
        200: {
            "failures": [_DETAILS],
            "total_count": 1,
            "next_cursor": None,
            "by_category": {"TEMPORARY": 1},
            "by_code": {"SMTP_TIMEOUT": 1},
            "by_type": {"send-email": 1},
        }
    },
    "getStats": {
        200: {
            "since": "2026-01-15T09:30:00Z",
            "until": _AT,
            "pending": 1,
            "scheduled": 2,
            "running": 2,
            "delayed": 0,
            "completed": 118,
            "failed": 0,
            "dead_letter": 1,
            "submission_rate": 0.034,
            "completion_rate": 0.033,
            "failure_rate": 0.0003,
            "queue_latency": _LATENCY,
            "execution_time": _LATENCY,
            "by_type": {"send-email": _COUNTS},
            "total": 4711,
            "total_retries": 23,
            "counts": dict.fromkeys(JobState, 0) | {JobState.RUNNING: 2, JobState.COMPLETED: 4709},
        }
    },
    "listPauses": {200: {"pauses": [_PAUSE]}},
    "getVerdict": {200: _VERDICT},
    "listWorkers": {200: {"workers": [_WORKER], "lost": [_LOST_WORKER]}},
    "listWaiting": {200: {"waiting": [{"job": _WAITING, "why": _WHY}]}},
    "listFailing": {
        200: {
            "since": "2026-01-15T09:30:00Z",
            "read": 40,
            "is_complete": True,
            "types": [
                {
                    "type": "send-email",
                    "attempts_failed": 40,
                    "completed": 10,
                    "clusters": [_CLUSTER],
                }
            ],
        }
    },
    "getSeries": {200: {"until": _LATER, "step": "PT60S", "points": [_POINT]}},
    "getAccess": {
        200: {
            "name": "on-call",
            "namespace": "default",
            "namespaces": ["default"],
            "jobs": {
                "get": True,
                "list": True,
                "create": False,
                "update": True,
                "delete": False,
            },
            "workers": {"patch": False},
        }
    },
    "listWebhooks": {200: {"messages": [_MESSAGE], "next_cursor": None, "has_more": False}},
    "getWebhook": {200: _MESSAGE},
    "redeliverWebhooks": {200: {"redelivered": 1, "dry_run": False, "has_more": False}},
    "purgeWebhooks": {200: {"purged": 1, "dry_run": True, "has_more": False}},
    "pause": {200: _PAUSE},
    "resume": {200: {"resumed": True}},
}
"""By operation and status."""
ANSWERS["searchJobs"] = ANSWERS["listJobs"]

STREAMS: Final[dict[str, str]] = {
    "followJob": _stream(Phase.RUNNING, "CLAIM") + _stream(Phase.COMPLETED, "COMPLETE") + _END,
    "followJobs": _stream(Phase.COMPLETED, "COMPLETE"),
}
"""What a stream of events looks like, by operation."""

ERROR: Final[dict[str, Any]] = {
    "code": "INVALID_REQUEST",
    "message": "max_attempts: Input should be less than or equal to 100 (and 1 more)",
    "details": [
        {
            "field": "max_attempts",
            "code": "LESS_THAN_EQUAL",
            "message": "Input should be less than or equal to 100",
        },
        {"field": "typo", "code": "UNKNOWN_FIELD", "message": "is not a field of this request"},
    ],
    "request_id": "3f6c1f0a5d1e4c7b9a2d8e7f6a5b4c3d",
}
