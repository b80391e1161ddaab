"""Recording rules and alerts, as data. What an installation chooses is a placeholder in them."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import yaml

RUNBOOKS: Final = "https://queueoperator.dev/runbooks"
"""A placeholder: nothing is published there. An installation says where its copy of
`docs/runbooks/README.md` is.
"""

DEFAULTS: Final[Mapping[str, int | float]] = {
    "startSeconds": 60,
    "startObjective": 0.99,
    "surviveObjective": 0.999,
    "oldestJobSeconds": 900,
    "backlogSeconds": 600,
    "deadLetters": 5,
    "eventLogLagSeconds": 60,
    "statusLagSeconds": 60,
    "comparisonAgeSeconds": 900,
    "eventLoopLagSeconds": 0.5,
    "errorRatio": 0.05,
    "webhookDueSeconds": 300,
    "webhookFailures": 5,
    "oldestTransactionSeconds": 600,
    "deadRows": 1000000,
    "databaseConnections": 80,
    "series": 25000,
}
"""The thresholds by the name of their value in the chart."""

NAMES: Final[Mapping[str, str]] = {"job": "queue-operator", "runbooks": RUNBOOKS}
"""The other placeholders, as they are where nothing else is said."""

_SELECTORS: Final = {"{:op": '{job="@job@"', "{:wk": '{job="queue-worker"'}
_PLACEHOLDER: Final = re.compile(r"@(\w+)@")


class Severity(StrEnum):
    CRITICAL = "critical"
    """Somebody is woken."""
    WARNING = "warning"
    """Somebody looks within the day."""
    INFO = "info"


def selected(expression: str) -> str:
    """The expression with its selectors spelt out: `{:op` stands for the operator of one release,
    `{:wk` for its workers. Lines and indentation become single spaces.
    """
    for short, long in _SELECTORS.items():
        expression = expression.replace(short, long)
    return " ".join(expression.split())


@dataclass(frozen=True, slots=True)
class Record:
    """A series that is computed ahead. `name` is level:metric:operation."""

    name: str
    expression: str

    def rule(self) -> dict[str, Any]:
        return {"record": self.name, "expr": selected(self.expression)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """One alert. `held` is how long its expression must be true, in Prometheus' spelling.

    Attributes:
        summary: one line, for a pager.
        description: what it means, with the value; the runbook says what to do.

    """

    name: str
    expression: str
    severity: Severity
    summary: str
    description: str
    held: str = "1m"

    def rule(self) -> dict[str, Any]:
        return {
            "alert": self.name,
            "expr": selected(self.expression),
            **({"for": self.held} if self.held != "0s" else {}),
            # That the figures are a worker's does not hide the alert from who looks at one release.
            "labels": {"severity": str(self.severity), "job": "@job@"},
            "annotations": {
                "summary": self.summary,
                "description": " ".join(self.description.split()),
                "runbook_url": f"@runbooks@#{self.name.lower()}",
            },
        }


@dataclass(frozen=True, slots=True)
class Group:
    """Rules that are evaluated one after the other."""

    name: str
    rules: Sequence[Record | Alert]

    def document(self) -> dict[str, Any]:
        return {"name": self.name, "rules": [rule.rule() for rule in self.rules]}


def document(groups: Sequence[Group]) -> str:
    """The rules file of `groups`, with placeholders."""
    content = {"groups": [group.document() for group in groups]}
    return yaml.safe_dump(content, sort_keys=False, width=100, allow_unicode=True)


def placeholders(text: str) -> set[str]:
    """The names of those in `text`."""
    return set(_PLACEHOLDER.findall(text))


def filled(text: str, **chosen: str | float) -> str:
    """`text` without placeholders: as chosen, else as they are by default.

    Raises KeyError for a placeholder that nobody knows.
    """
    values = {**DEFAULTS, **NAMES, **chosen}
    return _PLACEHOLDER.sub(lambda found: f"{values[found[1]]}", text)
