"""The alerts. Each speaks within two minutes of its fault, so that windows and holds are short;
what must not wake anybody for a single event has a least number of events.
"""

from typing import Final

from observability.recorded import BACKLOG, SLOTS, START, SURVIVE, Promise
from observability.rules import Alert, Severity

FASTEST: Final = 14.4
"""At this burn rate two days of errors use up the budget of a month."""
LEAST_ERRORS: Final = 5
"""Fewer in the longer window of a pair wake nobody, whatever part of all they are."""
_LONG: Final = frozenset({"6h", "1d", "3d"})
"""Windows whose errors are read from the recorded rates."""


def burning(promise: Promise, long: str, short: str, factor: float) -> str:
    """Both windows burn faster than `factor`: the long one says that it matters, the short one that
    it still goes on.
    """
    return (
        f"({promise.burn(long)}{{:op}} > {factor} and {promise.burn(short)}{{:op}} > {factor} "
        f"and {_errors(promise, long)} >= {LEAST_ERRORS})"
    )


def _errors(promise: Promise, window: str) -> str:
    """How many there were. The rates of five minutes, every five minutes, tell of each once; an
    average over what a young Prometheus has of the window would tell of more.
    """
    if window in _LONG:
        return f"sum_over_time({promise.rate()}{{:op}}[{window}:5m]) * 300"
    return f"({promise.errors.replace('%s', window).replace('rate(', 'increase(')})"


def fast(promise: Promise) -> str:
    pairs = (("5m", "1m", FASTEST), ("1h", "5m", FASTEST), ("6h", "30m", 6))
    return " or ".join(burning(promise, *pair) for pair in pairs)


def slow(promise: Promise) -> str:
    return " or ".join(burning(promise, *pair) for pair in (("1d", "2h", 3.0), ("3d", "6h", 1.0)))


PROMISED: Final = (
    Alert(
        name="QueueOperatorJobsStartLate",
        expression=fast(START),
        held="0s",
        severity=Severity.CRITICAL,
        summary="Jobs of namespace {{ $labels.namespace }} start late",
        description="""More attempts than promised waited longer than @startSeconds@ s before a
        worker got them. The errors come {{ $value | humanize }} times as fast as allowed.""",
    ),
    Alert(
        name="QueueOperatorJobsStartLateSlowly",
        expression=slow(START),
        held="0s",
        severity=Severity.WARNING,
        summary="Jobs of namespace {{ $labels.namespace }} start late, a few all the time",
        description="""Over days more attempts than promised waited longer than @startSeconds@ s;
        the errors come {{ $value | humanize }} times as fast as allowed.""",
    ),
    Alert(
        name="QueueOperatorJobsDie",
        expression=fast(SURVIVE),
        held="0s",
        severity=Severity.CRITICAL,
        summary="Jobs of namespace {{ $labels.namespace }} die",
        description="""More of the jobs that finish are dead letters than promised. The errors come
        {{ $value | humanize }} times as fast as allowed.""",
    ),
    Alert(
        name="QueueOperatorJobsDieSlowly",
        expression=slow(SURVIVE),
        held="0s",
        severity=Severity.WARNING,
        summary="Jobs of namespace {{ $labels.namespace }} die, a few all the time",
        description="""Over days more of the jobs that finish are dead letters than promised; the
        errors come {{ $value | humanize }} times as fast as allowed.""",
    ),
)

JOBS: Final = (
    Alert(
        name="QueueOperatorBacklogGrows",
        expression=f"""
        {BACKLOG}{{:op}} > 10
        and {BACKLOG}{{:op}} > max_over_time({BACKLOG}{{:op}}[1m] offset 1m)
        and {BACKLOG}{{:op}} / on (job, namespace) (
            sum by (job, namespace) (rate(queueoperator_job_wait_seconds_count{{:op}}[2m]))
            or 0 * {BACKLOG}{{:op}}) > @backlogSeconds@""",
        held="30s",
        severity=Severity.WARNING,
        summary="The backlog of namespace {{ $labels.namespace }} grows",
        description="""{{ $value | humanize }} jobs wait for a slot, more than a minute ago, and at
        the present rate they would need more than @backlogSeconds@ s to start.""",
    ),
    Alert(
        name="QueueOperatorOldestJobTooOld",
        expression="""max by (job, namespace, type)
        (queueoperator_oldest_runnable_job_age_seconds{:op}) > @oldestJobSeconds@""",
        severity=Severity.WARNING,
        summary="A job of type {{ $labels.type }} in {{ $labels.namespace }} waits very long",
        description="""The oldest job that could run now waits since
        {{ $value | humanizeDuration }}.""",
    ),
    Alert(
        name="QueueOperatorTypeNotStarted",
        expression="""(max by (job, namespace, type)
        (queueoperator_oldest_runnable_job_age_seconds{:op}) > @startSeconds@
        unless on (job, namespace, type) sum by (job, namespace, type)
            (increase(queueoperator_job_wait_seconds_count{:op}[1m])) > 0)
        and on (job, namespace) sum by (job, namespace)
            (queueoperator_worker_slots{:op, state="free"}) > 0""",
        held="30s",
        severity=Severity.CRITICAL,
        summary="Nobody takes jobs of type {{ $labels.type }} in {{ $labels.namespace }}",
        description="""The oldest waits since {{ $value | humanizeDuration }} and none was started
        in the last minute, though there are free slots: the workers with its handler or its tags
        are gone, or it is paused.""",
    ),
    Alert(
        name="QueueOperatorNoWorkers",
        expression=f"""{BACKLOG}{{:op}} > 0
        unless on (job, namespace) {SLOTS}{{:op}} > 0""",
        severity=Severity.CRITICAL,
        summary="Namespace {{ $labels.namespace }} has waiting jobs and no worker",
        description="{{ $value | humanize }} jobs could run now, and no worker is connected.",
    ),
    Alert(
        name="QueueOperatorDeadLetters",
        expression="""sum by (job, namespace, type)
        (increase(queueoperator_jobs_finished_total{:op, state="dead_letter"}[10m]))
        > @deadLetters@""",
        held="0s",
        severity=Severity.WARNING,
        summary="Jobs of type {{ $labels.type }} in {{ $labels.namespace }} became dead letters",
        description="""{{ $value | humanize }} in ten minutes, more than @deadLetters@. They are
        kept until somebody retries or deletes them.""",
    ),
    Alert(
        name="QueueOperatorTypeFails",
        expression="""sum by (job, namespace, type)
            (rate(queueoperator_job_attempts_total{:op, outcome=~"failed|lost|unknown"}[2m]))
        / sum by (job, namespace, type) (rate(queueoperator_job_attempts_total{:op}[2m])) > 0.5
        and sum by (job, namespace, type)
            (increase(queueoperator_job_attempts_total{:op, outcome=~"failed|lost|unknown"}[2m]))
        >= 5""",
        held="30s",
        severity=Severity.WARNING,
        summary="Type {{ $labels.type }} in {{ $labels.namespace }} fails",
        description="{{ $value | humanizePercentage }} of its attempts of two minutes failed.",
    ),
    Alert(
        name="QueueOperatorLeasesExpire",
        expression="""sum by (job, namespace)
        (increase(queueoperator_leases_expired_total{:op}[5m])) > 3""",
        held="0s",
        severity=Severity.WARNING,
        summary="Workers of namespace {{ $labels.namespace }} lose their jobs",
        description="""{{ $value | humanize }} jobs were taken from their workers in five minutes:
        workers die, hang or cannot reach the operator, or jobs run into their timeout.""",
    ),
    Alert(
        name="QueueOperatorEventLogLag",
        expression="""max by (job) (queueoperator_event_log_lag_seconds{:op})
        > @eventLogLagSeconds@""",
        severity=Severity.WARNING,
        summary="The figures about jobs are behind",
        description="""The counters lack events of the last {{ $value | humanizeDuration }}: the
        replica that counts cannot keep up, or a transaction holds it up.""",
    ),
    Alert(
        name="QueueOperatorUnnamedTypes",
        expression="max by (job) (queueoperator_unnamed_types{:op}) > 0",
        severity=Severity.INFO,
        summary="More job types are in use than have series of their own",
        description="{{ $value }} pairs of namespace and type are shown together as `other`.",
    ),
)

WORKERS: Final = (
    Alert(
        name="QueueWorkerDown",
        expression="up{:wk} == 0",
        severity=Severity.WARNING,
        summary="Worker {{ $labels.instance }} does not answer Prometheus",
        description="Its process is gone, hangs, or its metrics port cannot be reached.",
    ),
    Alert(
        name="QueueWorkerDisconnected",
        expression="queueworker_connected{:wk} == 0",
        severity=Severity.WARNING,
        summary="Worker {{ $labels.instance }} has no session",
        description="It runs, and the operator cannot give it jobs.",
    ),
    Alert(
        name="QueueWorkerHeartbeatsUnanswered",
        expression="""time() - queueworker_last_heartbeat_answer_timestamp_seconds{:wk} > 30
        and on (job, instance) min_over_time(queueworker_slots{:wk, state="busy"}[1m]) > 0""",
        held="30s",
        severity=Severity.WARNING,
        summary="Heartbeats of worker {{ $labels.instance }} are not answered",
        description="""It holds jobs, and the last answer came {{ $value | humanizeDuration }} ago:
        it will lose them.""",
    ),
    Alert(
        name="QueueWorkerStuckHandlers",
        expression="queueworker_stuck_handlers{:wk} > 0",
        severity=Severity.WARNING,
        summary="Worker {{ $labels.instance }} has handlers that do not end",
        description="{{ $value }} slots are taken by handlers past their time and their grace.",
    ),
    Alert(
        name="QueueWorkerEventLoopLag",
        expression="""histogram_quantile(0.99, sum by (job, instance, loop, le)
        (rate(queueworker_event_loop_lag_seconds_bucket{:wk}[2m]))) > @eventLoopLagSeconds@""",
        held="30s",
        severity=Severity.WARNING,
        summary="An event loop of worker {{ $labels.instance }} is held up",
        description="""A timer of its loop of {{ $labels.loop }} fires
        {{ $value | humanizeDuration }} late (99th percentile): a handler blocks the loop, or the
        processor is overloaded. Where it is that of the session, heartbeats will be late.""",
    ),
)
