"""Writes the reference of the metrics from their table."""

from pathlib import Path
from typing import Final

from queue_operator.metrics.labels import MAX_NAMESPACES, MAX_PAIRS
from queue_operator.metrics.registry import ABOUT_JOBS, METRICS, Metric
from queue_operator.metrics.worker import MAX_TYPES
from queue_operator.metrics.worker_table import METRICS as WORKER_METRICS

_HEAD: Final = """\
# Metrics

Served on the metrics port (9090) at `/metrics`. Durations are in seconds; values of labels are
lower case, but for the names that you give.

## About the stored jobs

One replica shows these, the one whose `queueoperator_leader` is 1, so that a sum and a maximum over
replicas are both right. When it ends, another takes its turn, at once after an orderly end and
within seconds (`metrics.leader_s`) after any other.

Counters and histograms are counted from the log of events in the store, where each event is exactly
once: whatever submitted, ended or swept a job is in them, and none is counted twice by several
replicas. They begin at 0 with each process, and a series is 0 when it is first shown, so that
`increase` sees its first step: what it had counted before is in the next scrape. Only the event
counts: outcomes that come late, of attempts that were lost before, change no attempt.

A replica that ends in order counts what is left, gives its turn to another, and goes on to show its
counters until they were scraped once more (`metrics.linger_s` at most, and only where somebody
scrapes it), so that a rolling restart loses nothing. So does one whose turn is over because the
store did not answer: it shows its counters once more. One that is killed loses what it counted
since it was scraped last; the next one goes on behind that. Of two scrapers, one is waited for.

When the store does not answer, the gauges disappear instead of showing an old number, or 0, and
`queueoperator_store_up` is 0.

Namespaces and types are bounded: {pairs} pairs of both are shown by name, those with the most jobs
first and then as they come; the others are summed up as type `other` of their namespace, for
{namespaces} namespaces, or of the namespace `other`. The store keeps the names, so that another
replica shows the same. A pair that had no jobs and no events for a day (`metrics.unused_names_s`)
gives its name back, and its series go; until then an empty queue shows 0. Ids, tags and messages
are never labels. With all names in use by jobs of all kinds a replica shows at most 25,000 series.

A library process that serves metrics of a store of its own (SQLite, or in memory) has the gauges of
this table, with names that it keeps for itself, and none of the counters and histograms.

| name | type | labels | meaning |
|---|---|---|---|
"""
_REPLICA: Final = """
## About each replica

What a replica itself does and sees: add them up.

| name | type | labels | meaning |
|---|---|---|---|
"""


_WORKERS: Final = f"""
# Metrics of workers

Served by each worker on port 9091 (`QUEUE_OPERATOR_METRICS_PORT`) at `/metrics`, where the extra
`metrics` is installed, also while it drains. `process_*` are those of the worker's own process,
without the processes of handlers; what those run is counted in the worker. Each type that has a
handler has all its series from the beginning, {MAX_TYPES} types at most; what others run is
together as type `other`. Workers are told apart by `worker` of `queueworker_info`, or by `pod`.

| name | type | labels | meaning |
|---|---|---|---|
"""


def documents() -> dict[Path, str]:
    """The generated file: path below the repository, content."""
    head = _HEAD.format(pairs=MAX_PAIRS, namespaces=MAX_NAMESPACES)
    others = [metric for metric in METRICS if metric not in ABOUT_JOBS]
    text = (
        head
        + "".join(map(_row, ABOUT_JOBS))
        + _REPLICA
        + "".join(map(_row, others))
        + "\n## Buckets\n\n"
        + "".join(map(_buckets, METRICS))
    )
    text += _WORKERS + "".join(map(_row, WORKER_METRICS))
    text += "\n## Buckets of workers\n\n" + "".join(map(_buckets, WORKER_METRICS))
    return {Path("docs/reference/metrics.md"): text}


def _row(metric: Metric) -> str:
    labels = ", ".join(f"`{label}`" for label in metric.labels) or "none"
    return f"| `{metric.name}` | {metric.kind} | {labels} | {metric.help} |\n"


def _buckets(metric: Metric) -> str:
    if not metric.buckets:
        return ""
    return f"- `{metric.name}`: {', '.join(f'{bound:g}' for bound in metric.buckets)}\n"
