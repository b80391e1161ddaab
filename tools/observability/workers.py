"""The dashboard of workers, from what they say themselves."""

from typing import Final

from observability.dashboards import Dashboard, Row
from observability.panels import GREEN, RED, YELLOW, Panel, Query

_THERE: Final = Row(
    "Are they there?",
    (
        Panel(
            kind="stat",
            title="Workers",
            description="Worker processes that answer Prometheus.",
            queries=[Query("count(queueworker_info{:ns})")],
            width=4,
            height=4,
        ),
        Panel(
            kind="stat",
            title="Without a session",
            description="Workers that run and to which the operator cannot give jobs.",
            queries=[Query("count(queueworker_connected{:ns} == 0) or vector(0)")],
            steps=((None, GREEN), (1, RED)),
            width=4,
            height=4,
        ),
        Panel(
            kind="stat",
            title="Busy slots",
            description="Slots with a job, of all workers.",
            queries=[Query('sum(queueworker_slots{:ns, state="busy"})')],
            width=4,
            height=4,
        ),
        Panel(
            kind="stat",
            title="Free slots",
            description="Slots that wait for a job.",
            queries=[Query('sum(queueworker_slots{:ns, state="free"})')],
            steps=((None, YELLOW), (1, GREEN)),
            width=4,
            height=4,
        ),
        Panel(
            kind="stat",
            title="Stuck handlers",
            description="Handlers past their time and their grace that still hold a thread.",
            queries=[Query("sum(queueworker_stuck_handlers{:ns})")],
            steps=((None, GREEN), (1, RED)),
            width=4,
            height=4,
        ),
        Panel(
            kind="stat",
            title="Unsent outcomes",
            description="Outcomes that the operator has not acknowledged yet.",
            queries=[Query("sum(queueworker_outcomes_unsent{:ns})")],
            width=4,
            height=4,
        ),
        Panel(
            kind="table",
            title="Each worker",
            description="Its version, and the operator that it is connected to.",
            queries=[
                Query(
                    "max by (namespace, instance, worker, version, operator) "
                    "(queueworker_info{:ns})"
                )
            ],
            columns=("namespace", "instance", "worker", "version", "operator"),
            value="up",
            width=12,
        ),
        Panel(
            kind="timeseries",
            title="Connected workers",
            description="A dead worker is missing; one that lost its operator is not connected.",
            queries=[
                Query("count(queueworker_info{:ns})", "running"),
                Query("sum(queueworker_connected{:ns})", "connected"),
            ],
            width=6,
        ),
        Panel(
            kind="timeseries",
            title="Sessions begun",
            description="A minute. Workers that begin sessions all the time lose their connection.",
            queries=[
                Query(
                    "sum by (instance) "
                    "(rate(queueworker_sessions_total{:ns}[$__rate_interval])) * 60",
                    "{{instance}}",
                )
            ],
            unit="opm",
            width=6,
        ),
    ),
)

_WORKING: Final = Row(
    "Do they work?",
    (
        Panel(
            kind="timeseries",
            title="Busy part of the slots",
            description="Of each worker. All at 100 % means that more slots are needed.",
            queries=[
                Query(
                    'sum by (instance) (queueworker_slots{:ns, state="busy"}) '
                    "/ sum by (instance) (queueworker_slots{:ns})",
                    "{{instance}}",
                )
            ],
            unit="percentunit",
        ),
        Panel(
            kind="timeseries",
            title="Attempts by outcome",
            description="A second, as the workers saw them end.",
            queries=[
                Query(
                    "sum by (outcome) (rate(queueworker_attempts_total{:ns}[$__rate_interval]))",
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
                    "topk(10, sum by (type, error_class) (rate(queueworker_attempts_total"
                    '{:ns, outcome=~"failed|lost"}[$__rate_interval])) > 0)',
                    "{{type}} {{error_class}}",
                )
            ],
            unit="ops",
        ),
        Panel(
            kind="timeseries",
            title="Run time by type",
            description="95th percentile of the time in the handler.",
            queries=[
                Query(
                    "histogram_quantile(0.95, sum by (type, le) "
                    "(rate(queueworker_attempt_seconds_bucket{:ns}[$__rate_interval])))",
                    "{{type}}",
                )
            ],
            unit="s",
        ),
        Panel(
            kind="timeseries",
            title="Attempts by worker",
            description="A second. One that does nothing while others are busy has other tags.",
            queries=[
                Query(
                    "sum by (instance) (rate(queueworker_attempts_total{:ns}[$__rate_interval]))",
                    "{{instance}}",
                )
            ],
            unit="ops",
        ),
        Panel(
            kind="timeseries",
            title="Handlers",
            description="Types that each worker has a handler for.",
            queries=[Query("max by (instance) (queueworker_handlers{:ns})", "{{instance}}")],
        ),
    ),
)

_HEALTHY: Final = Row(
    "What is wrong with one?",
    (
        Panel(
            kind="timeseries",
            title="Since the last heartbeat was answered",
            description="""Only of workers that hold jobs: the others send none. At the lease's
            length their jobs are lost.""",
            queries=[
                Query(
                    "time() - max by (instance) "
                    "(queueworker_last_heartbeat_answer_timestamp_seconds{:ns}) and on (instance) "
                    'sum by (instance) (queueworker_slots{:ns, state="busy"}) > 0',
                    "{{instance}}",
                )
            ],
            unit="s",
            steps=((None, "transparent"), (30, RED)),
        ),
        Panel(
            kind="timeseries",
            title="Heartbeats",
            description="A second, by worker.",
            queries=[
                Query(
                    "sum by (instance) (rate(queueworker_heartbeats_total{:ns}[$__rate_interval]))",
                    "{{instance}}",
                )
            ],
            unit="ops",
        ),
        Panel(
            kind="timeseries",
            title="Answer to a heartbeat",
            description="99th percentile of the time to the answer.",
            queries=[
                Query(
                    "histogram_quantile(0.99, sum by (instance, le) (rate("
                    "queueworker_heartbeat_answer_seconds_bucket{:ns}[$__rate_interval])))",
                    "{{instance}}",
                )
            ],
            unit="s",
        ),
        Panel(
            kind="timeseries",
            title="Lost leases",
            description="Jobs that a worker was told it does not hold any more, a minute.",
            queries=[
                Query(
                    "sum by (instance) "
                    "(rate(queueworker_leases_lost_total{:ns}[$__rate_interval])) * 60",
                    "{{instance}}",
                )
            ],
            unit="opm",
        ),
        Panel(
            kind="timeseries",
            title="Event loop lag",
            description="""99th percentile of how late a timer fires. A handler that blocks the loop
            makes heartbeats late.""",
            queries=[
                Query(
                    "histogram_quantile(0.99, sum by (instance, loop, le) (rate("
                    "queueworker_event_loop_lag_seconds_bucket{:ns}[$__rate_interval])))",
                    "{{instance}} {{loop}}",
                )
            ],
            unit="s",
            steps=((None, "transparent"), (0.5, RED)),
        ),
        Panel(
            kind="timeseries",
            title="Processor",
            description="Processors in use, by worker.",
            queries=[
                Query(
                    "sum by (instance) (rate(process_cpu_seconds_total{:ns}[$__rate_interval]) "
                    "and on (job, instance) queueworker_info{:ns})",
                    "{{instance}}",
                )
            ],
        ),
        Panel(
            kind="timeseries",
            title="Memory",
            description="Resident memory, by worker.",
            queries=[
                Query(
                    "sum by (instance) (process_resident_memory_bytes{:ns} "
                    "and on (job, instance) queueworker_info{:ns})",
                    "{{instance}}",
                )
            ],
            unit="bytes",
        ),
        Panel(
            kind="timeseries",
            title="Stuck handlers by worker",
            description="By worker.",
            queries=[Query("max by (instance) (queueworker_stuck_handlers{:ns})", "{{instance}}")],
            steps=((None, "transparent"), (1, RED)),
        ),
        Panel(
            kind="timeseries",
            title="Unsent outcomes by worker",
            description="By worker. They pile up where the operator does not answer.",
            queries=[Query("max by (instance) (queueworker_outcomes_unsent{:ns})", "{{instance}}")],
        ),
    ),
)

WORKERS: Final = Dashboard(
    name="workers",
    title="Queue Operator / Workers",
    description="Are the workers there, do they work, and what is wrong with one?",
    rows=(_THERE, _WORKING, _HEALTHY),
    jobs="queueworker_info",
    namespaces="queueworker_info",
    instances=True,
)
