"""Writes the reference of the metrics from their table."""

from pathlib import Path

from queue_operator.metrics.registry import METRICS, Metric
from queue_operator.metrics.worker import MAX_TYPES
from queue_operator.metrics.worker_table import METRICS as WORKER_METRICS

_HEAD = """\
# Metrics

Served on the metrics port (9090) at `/metrics`. Durations are in seconds. Job types are
bounded: the first 200 pairs of namespace and type have series of their own, the rest are
shown together as type `other`; ids, tags and messages are never labels. When the store
does not answer, the gauges about stored jobs disappear instead of showing an old number.

| name | type | labels | meaning |
|---|---|---|---|
"""


_WORKERS = f"""
# Metrics of workers

Served by each worker on port 9091 (`QUEUE_OPERATOR_METRICS_PORT`) at `/metrics`, where the extra
`metrics` is installed, also while it drains. `process_*` are those of the worker's own process,
without the processes of handlers; what those run is counted in the worker. Each type that has a
handler has all its series from the beginning, {MAX_TYPES} types at most; what others run is together as
type `other`. Workers are told apart by `worker` of `queueworker_info`, or the target's `pod`.

| name | type | labels | meaning |
|---|---|---|---|
"""


def documents() -> dict[Path, str]:
    """The generated file: path below the repository, content."""
    text = (
        _HEAD + "".join(map(_row, METRICS)) + "\n## Buckets\n\n" + "".join(map(_buckets, METRICS))
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
