"""Writes the reference of the metrics from their table."""

from pathlib import Path

from queue_operator.metrics.registry import METRICS, Metric

_HEAD = """\
# Metrics

Served on the metrics port (9090) at `/metrics`. Durations are in seconds. Job types are
bounded: the first 200 pairs of namespace and type have series of their own, the rest are
shown together as type `other`; ids, tags and messages are never labels. When the store
does not answer, the gauges about stored jobs disappear instead of showing an old number.

| name | type | labels | meaning |
|---|---|---|---|
"""


def documents() -> dict[Path, str]:
    """The generated file: path below the repository, content."""
    text = (
        _HEAD + "".join(map(_row, METRICS)) + "\n## Buckets\n\n" + "".join(map(_buckets, METRICS))
    )
    return {Path("docs/reference/metrics.md"): text}


def _row(metric: Metric) -> str:
    labels = ", ".join(f"`{label}`" for label in metric.labels) or "none"
    return f"| `{metric.name}` | {metric.kind} | {labels} | {metric.help} |\n"


def _buckets(metric: Metric) -> str:
    if not metric.buckets:
        return ""
    return f"- `{metric.name}`: {', '.join(f'{bound:g}' for bound in metric.buckets)}\n"
