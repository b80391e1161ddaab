"""The metrics that dashboards, rules and alerts may use: name, kind and labels."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from queue_operator.metrics import registry, worker_table


@dataclass(frozen=True)
class Known:
    """What is known of a metric."""

    kind: str
    labels: tuple[str, ...] = ()


OTHERS: Final[Mapping[str, Known]] = {
    "up": Known("gauge"),
    "ALERTS": Known("gauge", ("alertname", "alertstate", "severity", "namespace", "type")),
    "scrape_samples_scraped": Known("gauge"),
    "process_cpu_seconds_total": Known("counter"),
    "process_resident_memory_bytes": Known("gauge"),
}
"""Of Prometheus itself, and of its client library."""
OURS: Final = {
    metric.name: Known(str(metric.kind), metric.labels)
    for metric in (*registry.METRICS, *worker_table.METRICS)
}
NAMES: Final[Mapping[str, Known]] = {**OTHERS, **OURS}
