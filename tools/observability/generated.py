"""The files that `make generate` writes: dashboards and rules for the chart, the rules as they are
for a Prometheus without its operator, and the list of all alerts.
"""

from pathlib import Path
from typing import Final

from observability.alerts_operator import ALERTS, TEXT
from observability.operator_database import OPERATOR
from observability.overview import OVERVIEW
from observability.rules import Alert, filled, selected
from observability.workers import WORKERS

DASHBOARDS: Final = (OVERVIEW, WORKERS, OPERATOR)
CHART: Final = Path("charts/queue-operator/files")
PLAIN: Final = Path("docs/reference/prometheus-rules.yaml")
_BY: Final = "# Generated from tools/observability by `make generate`.\n"
_CHART_NOTE: Final = "# The template prometheusrule.yaml fills in what stands between two @.\n"
_PLAIN_NOTE: Final = """\
# For a Prometheus without its operator, whose job for the operator is `queue-operator` and for
# workers `queue-worker`; thresholds are those of the chart.
"""
_HEAD: Final = """\
# Alerts

Every alert that the chart ships, with the thresholds as they are by default. What each means and
what to do: [the runbook](../runbooks/README.md). The rules as a file:
[prometheus-rules.yaml](prometheus-rules.yaml).

| alert | severity | for | says | when |
|---|---|---|---|---|
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
    return (
        f"| [{alert.name}](../runbooks/README.md#{alert.name.lower()}) | {alert.severity} "
        f"| {alert.held} | {summary} | `{when}` |\n"
    )
