"""The table of the metrics of a worker. Their documentation is generated from it."""

from typing import Final

from queue_operator.metrics.registry import Kind, Metric

_RUN_BUCKETS_S: Final = (0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200)
_ANSWER_BUCKETS_S: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)
_LAG_BUCKETS_S: Final = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)

INFO: Final = Metric(
    name="queueworker_info",
    kind=Kind.GAUGE,
    labels=("version", "worker", "operator"),
    help="Always 1; the labels say what runs, under which name, and to which operator it connects.",
)
CONNECTED: Final = Metric(
    name="queueworker_connected",
    kind=Kind.GAUGE,
    help="1 while this worker has a session, else 0.",
)
SESSIONS: Final = Metric(
    name="queueworker_sessions_total",
    kind=Kind.COUNTER,
    help="Sessions that the operator has let in: one more with each reconnect.",
)
SLOTS: Final = Metric(
    name="queueworker_slots",
    kind=Kind.GAUGE,
    labels=("state",),
    help="Slots of this worker: busy (a handler runs, also one whose job is over) or free. Of one "
    "that drains none is free.",
)
HANDLERS: Final = Metric(
    name="queueworker_handlers",
    kind=Kind.GAUGE,
    help="Types of jobs that have a handler here.",
)
ATTEMPTS: Final = Metric(
    name="queueworker_attempts_total",
    kind=Kind.COUNTER,
    labels=("type", "outcome", "error_class"),
    help="Attempts that ended here. outcome: completed, failed, stopped, handed_back, or lost (the "
    "operator gave the job to another worker, or ended it); error_class: the error's category, "
    "empty for none. A report that the operator refuses is counted here all the same.",
)
ATTEMPT_SECONDS: Final = Metric(
    name="queueworker_attempt_seconds",
    kind=Kind.HISTOGRAM,
    labels=("type",),
    buckets=_RUN_BUCKETS_S,
    help="From the beginning of a handler to the outcome of its attempt, for those that began.",
)
UNSENT: Final = Metric(
    name="queueworker_outcomes_unsent",
    kind=Kind.GAUGE,
    help="Outcomes that the operator has not acknowledged, sent or not.",
)
HEARTBEATS: Final = Metric(
    name="queueworker_heartbeats_total",
    kind=Kind.COUNTER,
    help="Heartbeats sent. A worker that holds no job sends none.",
)
ANSWER_SECONDS: Final = Metric(
    name="queueworker_heartbeat_answer_seconds",
    kind=Kind.HISTOGRAM,
    buckets=_ANSWER_BUCKETS_S,
    help="From a heartbeat that names jobs to the answer about their leases.",
)
LAST_ANSWER: Final = Metric(
    name="queueworker_last_heartbeat_answer_timestamp_seconds",
    kind=Kind.GAUGE,
    help="When the last answer to a heartbeat came, in seconds since 1970; absent before the "
    "first. Only of a worker with busy slots does its age say something.",
)
LEASES_LOST: Final = Metric(
    name="queueworker_leases_lost_total",
    kind=Kind.COUNTER,
    help="Jobs that this worker held and whose lease the operator says is over.",
)
STUCK: Final = Metric(
    name="queueworker_stuck_handlers",
    kind=Kind.GAUGE,
    help="Handlers whose job is over and that go on, holding a slot: past their timeout, or "
    "not obeying a forced cancel.",
)
LOOP_LAG: Final = Metric(
    name="queueworker_event_loop_lag_seconds",
    kind=Kind.HISTOGRAM,
    labels=("loop",),
    buckets=_LAG_BUCKETS_S,
    help="How late a timer fires, looked at twice a second. loop: handlers (where async handlers "
    "run: what blocks it holds up all of them), session (heartbeats and outcomes).",
)

METRICS: Final = (
    INFO,
    CONNECTED,
    SESSIONS,
    SLOTS,
    HANDLERS,
    ATTEMPTS,
    ATTEMPT_SECONDS,
    UNSENT,
    HEARTBEATS,
    ANSWER_SECONDS,
    LAST_ANSWER,
    LEASES_LOST,
    STUCK,
    LOOP_LAG,
)
