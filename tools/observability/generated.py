"""The files that `make generate` writes: dashboards and rules for the chart, the rules as they are
for a Prometheus without its operator, and the list of all alerts.
"""

from pathlib import Path
from typing import Final

from observability.alerts_operator import ALERTS, TEXT
from observability.operator_database import OPERATOR
from observability.overview import OVERVIEW
from observability.recorded import GROUPS as RECORDED
from observability.rules import DEFAULTS, Alert, Record, filled, placeholders, selected
from observability.workers import WORKERS

DASHBOARDS: Final = (OVERVIEW, WORKERS, OPERATOR)
CHART: Final = Path("charts/queue-operator/files")
PLAIN: Final = Path("docs/reference/prometheus-rules.yaml")
_BY: Final = "# Generated from tools/observability by `make generate`.\n"
_CHART_NOTE: Final = "# The template prometheusrule.yaml fills in what stands between two @.\n"
_PLAIN_NOTE: Final = """\
# For a Prometheus without its operator, whose job for the operator is `queue-operator` and for
# workers `queue-worker`; thresholds are those of the chart. runbook_url is a placeholder, where
# nothing is published: docs/guides/observability.md says how to render the rules with your own.
"""
_HEAD: Final = """\
# Alerts

Every alert that the chart ships, with the thresholds as they are by default. What each means and
what to do: [the runbook](../runbooks/README.md). The rules as a file:
[prometheus-rules.yaml](prometheus-rules.yaml).

`critical` wakes somebody, `warning` is looked at within the day, `info` when there is time. *Set
by* are the values under `metrics.prometheusRule.thresholds` of the chart that move the alert; with
none it is fixed.

| alert | severity | for | says | set by | when |
|---|---|---|---|---|---|
"""


def documents() -> dict[Path, str]:
    """The text of each generated file by its path in the repository."""
    boards = {CHART / "dashboards" / f"{one.name}.json": one.text() for one in DASHBOARDS}
    return {
        **boards,
        CHART / "rules.yaml": _BY + _CHART_NOTE + TEXT,
        PLAIN: _BY + _PLAIN_NOTE + filled(TEXT),
        Path("docs/reference/alerts.md"): _HEAD + "".join(map(_row, ALERTS)),
    }


def _row(alert: Alert) -> str:
    when = filled(selected(alert.expression)).replace("|", "\\|")
    summary = alert.summary.replace("{{ $labels.", "*").replace(" }}", "*")
    set_by = ", ".join(f"`{name}`" for name in thresholds(alert))
    return (
        f"| [{alert.name}](../runbooks/README.md#{alert.name.lower()}) | {alert.severity} "
        f"| {alert.held} | {summary} | {set_by} | `{when}` |\n"
    )


def thresholds(alert: Alert) -> list[str]:
    """The values of the chart that move an alert, also through what is recorded for it."""
    recorded = [rule for group in RECORDED for rule in group.rules if isinstance(rule, Record)]
    read = [rule.expression for rule in recorded if rule.name in alert.expression]
    named = placeholders(" ".join([alert.expression, *read]))
    return [name for name in DEFAULTS if name in named]
