"""Each alert links to a section of the runbook that says what to do."""

import json
import re
from pathlib import Path
from typing import Final

from tests.observability.linting import panels

from observability.alerts_operator import ALERTS
from observability.generated import DASHBOARDS, thresholds
from observability.rules import DEFAULTS, NAMES, filled

ROOT: Final = Path(__file__).resolve().parents[2]
RUNBOOK: Final = (ROOT / "docs" / "runbooks" / "README.md").read_text()
SECTIONS: Final = dict(
    re.findall(r"^### (\w+)\n(.*?)(?=^##|\Z)", RUNBOOK, re.DOTALL | re.MULTILINE)
)


def test_each_alert_has_a_section_and_each_section_an_alert() -> None:
    assert sorted(SECTIONS) == sorted(alert.name for alert in ALERTS)


def test_a_section_says_where_to_look_and_what_to_do() -> None:
    for name, text in SECTIONS.items():
        assert "**Look**" in text, name
        assert "**do**" in text.lower(), name


def test_an_alert_links_to_its_own_section() -> None:
    for alert in ALERTS:
        url = filled(alert.rule()["annotations"]["runbook_url"])
        assert url == f"{NAMES['runbooks']}#{alert.name.lower()}"


def test_panels_that_the_runbook_names_are_on_a_dashboard() -> None:
    titles = {panel["title"] for board in DASHBOARDS for panel in panels(json.loads(board.text()))}
    named = {
        " ".join(name.split()) for name in re.findall(r"(?<!\*)\*([A-Za-z][^*]+)\*(?!\*)", RUNBOOK)
    }
    known = {*titles, "Budget burnt"}
    assert sorted(named - known) == []


def test_each_threshold_is_told_with_the_alerts_that_it_moves() -> None:
    moved = {alert.name: thresholds(alert) for alert in ALERTS}
    assert {name for names in moved.values() for name in names} == set(DEFAULTS)
    # The objective is in what is recorded for the alert.
    assert moved["QueueOperatorJobsDie"] == ["surviveObjective"]
    assert moved["QueueOperatorJobsStartLateSlowly"] == ["startSeconds", "startObjective"]
    assert moved["QueueOperatorBacklogGrows"] == ["backlogSeconds"]
    assert moved["QueueOperatorNoWorkers"] == []
