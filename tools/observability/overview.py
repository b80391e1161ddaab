"""The overview: one look says whether the queue is healthy, the rows below why not."""

from typing import Final

from observability.dashboards import Dashboard, Row
from observability.panels import GREEN, RED, YELLOW, Panel, Query
from observability.recorded import BACKLOG, PROMISES, SLOTS, START, SURVIVE, Promise

_WINDOWS: Final = ("5m", "1h", "6h", "3d")
_BACKLOG: Final = f"sum({BACKLOG}{{:ns}})"


def _quantiles(metric: str) -> tuple[Query, ...]:
    return tuple(
        Query(
            f"histogram_quantile({part}, sum by (le) "
            f"(rate({metric}_bucket{{:ns}}[$__rate_interval])))",
            f"p{part * 100:g}",
        )
        for part in (0.5, 0.95, 0.99)
    )


def _kept(promise: Promise) -> str:
    """The part of all that kept the promise, over the time that is shown."""
    return (
        f"1 - sum(avg_over_time({promise.rate()}{{:ns}}[$__range])) "
        f"/ (sum(avg_over_time({promise.total_rate()}{{:ns}}[$__range])) > 0)"
    )


def _burning(promise: Promise) -> tuple[Query, ...]:
    return tuple(
        Query(f"max({promise.burn(window)}{{:ns}})", f"over {window}") for window in _WINDOWS
    )


_HEALTHY: Final = Row(
    "Is it healthy?",
    (
        Panel(
            kind="stat",
            title="Alerts",
            description="Alerts that fire. Which ones: the table at the end.",
            queries=[
                Query(
                    'count(ALERTS{:job, alertname=~"Queue(Operator|Worker).+", '
                    'alertstate="firing"}) or vector(0)'
                )
            ],
            steps=((None, GREEN), (1, RED)),
            width=3,
            height=5,
        ),
        Panel(
            kind="stat",
            title="Backlog",
            description="""Jobs that could run now and have no slot. Yellow from a thousand, red
            from ten thousand; whether that is much, *Oldest waits* says.""",
            queries=[Query(_BACKLOG)],
            steps=((None, GREEN), (1_000, YELLOW), (10_000, RED)),
            width=3,
            height=5,
        ),
        Panel(
            kind="stat",
            title="Oldest waits",
            description="""Age of the oldest job that could run now. Yellow from when it breaks the
            promise to start in time, red from when the alert speaks.""",
            queries=[Query("max(queueoperator_oldest_runnable_job_age_seconds{:ns})")],
            unit="s",
            steps=((None, GREEN), (60, YELLOW), (900, RED)),
            width=3,
            height=5,
        ),
        Panel(
            kind="stat",
            title="Running",
            description="Jobs that a worker has, those asked to stop included.",
            queries=[
                Query('sum(queueoperator_jobs{:ns, state=~"running|cancelling"}) or vector(0)')
            ],
            width=3,
            height=5,
        ),
        Panel(
            kind="stat",
            title="Finished a second",
            description="Jobs that reached a final state, whatever it is.",
            queries=[Query("sum(rate(queueoperator_jobs_finished_total{:ns}[$__rate_interval]))")],
            unit="ops",
            width=3,
            height=5,
        ),
        Panel(
            kind="gauge",
            title="Started in time",
            description="""The part of all attempts of the time shown that did not wait longer than
            promised.""",
            queries=[Query(_kept(START))],
            unit="percentunit",
            steps=((None, RED), (0.95, YELLOW), (0.99, GREEN)),
            decimals=2,
            width=3,
            height=5,
        ),
        Panel(
            kind="gauge",
            title="Survived",
            description="The part of all finished jobs of the time shown that are no dead letters.",
            queries=[Query(_kept(SURVIVE))],
            unit="percentunit",
            steps=((None, RED), (0.99, YELLOW), (0.999, GREEN)),
            decimals=2,
            width=3,
            height=5,
        ),
        Panel(
            kind="stat",
            title="Free slots",
            description="Slots of connected workers that wait for a job.",
            queries=[Query('sum(queueoperator_worker_slots{:ns, state="free"}) or vector(0)')],
            steps=((None, YELLOW), (1, GREEN)),
            width=3,
            height=5,
        ),
    ),
)

_FLOWING: Final = Row(
    "Does it flow?",
    (
        Panel(
            kind="timeseries",
            title="Submitted and finished",
            description="""A second, through whatever door. Where more is submitted than finished
            for long, the backlog grows.""",
            queries=[
                Query(
                    "sum(rate(queueoperator_jobs_submitted_total{:ns}[$__rate_interval]))",
                    "submitted",
                ),
                Query(
                    "sum by (state) "
                    "(rate(queueoperator_jobs_finished_total{:ns}[$__rate_interval]))",
                    "{{state}}",
                ),
            ],
            unit="ops",
        ),
        Panel(
            kind="timeseries",
            title="Jobs that are not finished",
            description="By state. Waiting jobs that may not run yet are among them.",
            queries=[
                Query(
                    'sum by (state) (queueoperator_jobs{:ns, state=~"initial_pending|failed_retry|'
                    'unknown_retry|running|cancelling"})',
                    "{{state}}",
                )
            ],
            stacked=True,
        ),
        Panel(
            kind="timeseries",
            title="Slots and what needs them",
            description="""Needed: jobs that run or could run now. Above the slots there are, jobs
            wait.""",
            queries=[
                Query("sum(queueoperator_needed_slots{:ns})", "needed"),
                Query(f"sum({SLOTS}{{:ns}})", "there"),
                Query('sum(queueoperator_worker_slots{:ns, state="busy"})', "busy"),
            ],
        ),
        Panel(
            kind="timeseries",
            title="Wait for a worker",
            description="From when an attempt could be claimed to its assignment.",
            queries=_quantiles("queueoperator_job_wait_seconds"),
            unit="s",
            steps=((None, "transparent"), (60, RED)),
        ),
        Panel(
            kind="heatmap",
            title="Wait for a worker, all attempts",
            description="How many attempts waited how long. The y axis is the upper bound.",
            queries=[
                Query(
                    "sum by (le) "
                    "(increase(queueoperator_job_wait_seconds_bucket{:ns}[$__rate_interval]))",
                    "{{le}}",
                )
            ],
            unit="s",
        ),
        Panel(
            kind="timeseries",
            title="Run time",
            description="From the assignment of an attempt to its end.",
            queries=_quantiles("queueoperator_job_run_seconds"),
            unit="s",
        ),
    ),
)

_FAILED: Final = 'outcome=~"failed|lost|unknown"'

_WHY: Final = Row(
    "Why not?",
    (
        Panel(
            kind="table",
            title="Types that fail",
            description="""Attempts of the time shown that failed or were lost, the worst ten. The
            error class says whose fault; `queue-operator failures` lists the errors.""",
            queries=[
                Query(
                    "topk(10, sum by (namespace, type, error_class) (increase("
                    f"queueoperator_job_attempts_total{{:ns, {_FAILED}}}[$__range])) > 0.5)"
                )
            ],
            steps=((None, "text"), (5, YELLOW), (50, RED)),
            columns=("namespace", "type", "error_class"),
            value="failed attempts",
            decimals=0,
            width=12,
        ),
        Panel(
            kind="bargauge",
            title="Oldest waiting job of each type",
            description="The ten types whose oldest job that could run now waits longest.",
            queries=[
                Query(
                    "topk(10, max by (namespace, type) "
                    "(queueoperator_oldest_runnable_job_age_seconds{:ns}) > 0)",
                    "{{namespace}} {{type}}",
                )
            ],
            unit="s",
            steps=((None, GREEN), (60, YELLOW), (900, RED)),
            width=12,
        ),
        Panel(
            kind="timeseries",
            title="Attempts by outcome",
            description="A second. `lost` are those that the sweeper took from a worker.",
            queries=[
                Query(
                    "sum by (outcome) "
                    "(rate(queueoperator_job_attempts_total{:ns}[$__rate_interval]))",
                    "{{outcome}}",
                )
            ],
            unit="ops",
            stacked=True,
        ),
        Panel(
            kind="timeseries",
            title="Failed attempts by type",
            description="A second, the worst ten types.",
            queries=[
                Query(
                    "topk(10, sum by (namespace, type) (rate("
                    f"queueoperator_job_attempts_total{{:ns, {_FAILED}}}[$__rate_interval])) > 0)",
                    "{{namespace}} {{type}}",
                )
            ],
            unit="ops",
        ),
        Panel(
            kind="timeseries",
            title="Backlog by namespace",
            description="Jobs that could run now and have no slot, the ten largest.",
            queries=[Query(f"topk(10, {BACKLOG}{{:ns}} > 0)", "{{namespace}}")],
        ),
        Panel(
            kind="timeseries",
            title="Taken from workers",
            description="""Attempts whose lease ran out or whose time was over, a minute. A step
            means that a worker died.""",
            queries=[
                Query(
                    "sum by (namespace, type) "
                    "(rate(queueoperator_leases_expired_total{:ns}[$__rate_interval])) * 60",
                    "{{namespace}} {{type}}",
                )
            ],
            unit="opm",
        ),
        Panel(
            kind="timeseries",
            title="Slots needed by pool",
            description="""Jobs that run or could run now by their tag `pool`; none is shown as
            `any`.""",
            queries=[
                Query(
                    "sum by (pool) (label_replace(queueoperator_needed_slots{:ns}, "
                    '"pool", "any", "pool", "()"))',
                    "{{pool}}",
                )
            ],
        ),
        Panel(
            kind="table",
            title="Dead letters",
            description="Stored ones, which wait for a retry or a deletion; the ten most.",
            queries=[
                Query(
                    "topk(10, sum by (namespace, type) "
                    '(queueoperator_jobs{:ns, state="dead_letter"}) > 0)'
                )
            ],
            columns=("namespace", "type"),
            value="dead letters",
            decimals=0,
        ),
    ),
)

_TOLD: Final = Row(
    "Are receivers told?",
    (
        Panel(
            kind="timeseries",
            title="Tries to tell receivers",
            description="""A second, by outcome. Those that are `retried` failed and are made again;
            after a day the message has `failed`.""",
            queries=[
                Query(
                    "sum by (outcome) "
                    "(rate(queueoperator_webhook_deliveries_total{:job}[$__rate_interval]))",
                    "{{outcome}}",
                )
            ],
            unit="ops",
            stacked=True,
        ),
        Panel(
            kind="timeseries",
            title="Messages that wait",
            description="Messages to callback URLs that are to be sent, and those given up.",
            queries=[
                Query("sum(queueoperator_webhook_pending{:ns})", "to send"),
                Query("sum(queueoperator_webhook_failed{:ns})", "failed"),
            ],
        ),
        Panel(
            kind="timeseries",
            title="How late and how slow receivers are told",
            description="The oldest message that is due, and how long a try takes.",
            queries=[
                Query("max(queueoperator_webhook_oldest_due_seconds{:job})", "oldest due"),
                Query(
                    "histogram_quantile(0.95, sum by (le) (rate("
                    "queueoperator_webhook_delivery_seconds_bucket{:job}[$__rate_interval])))",
                    "p95 of a try",
                ),
            ],
            unit="s",
            steps=((None, "transparent"), (300, RED)),
        ),
    ),
)

_PROMISED: Final = Row(
    "Are the promises kept?",
    (
        *(
            Panel(
                kind="timeseries",
                title=f"Budget burnt: {title}",
                description="""How many times faster than allowed the errors come, in the namespace
                where they are worst. 1 uses up the budget exactly; 14.4 wakes somebody.""",
                queries=_burning(promise),
                width=12,
                steps=((None, "transparent"), (1, YELLOW), (14.4, RED)),
            )
            for promise, title in zip(
                PROMISES, ("jobs start in time", "jobs do not die"), strict=True
            )
        ),
        Panel(
            kind="table",
            title="Alerts that fire or are about to",
            description="Each has a page of the runbook behind its `runbook_url`.",
            queries=[
                Query(
                    "max by (alertname, alertstate, severity, namespace, type, instance) "
                    '(ALERTS{:job, alertname=~"Queue(Operator|Worker).+"})'
                )
            ],
            columns=("alertname", "alertstate", "severity", "namespace", "type", "instance"),
            width=24,
        ),
    ),
)

OVERVIEW: Final = Dashboard(
    name="overview",
    title="Queue Operator / Overview",
    description="Is the queue healthy, and if not, why? Needs the recording rules of the chart.",
    rows=(_HEALTHY, _FLOWING, _WHY, _TOLD, _PROMISED),
)
