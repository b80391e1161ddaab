"""The dashboards keep the rules of Grafana's linter, and show nothing that is not there."""

import json
import re
from collections.abc import Callable
from typing import Any, Final

import pytest
from tests.observability.linting import RULES, Board, panels, targets
from tests.observability.promql import without_selectors

from observability.generated import DASHBOARDS

BOARDS: Final[dict[str, Board]] = {one.name: json.loads(one.text()) for one in DASHBOARDS}
# All its figures come from whichever replica shows those of the store, or are recorded for all of
# them: whoever chose one replica would see nothing.
NO_INSTANCES: Final = {
    ("overview", "template-instance-rule"),
    ("overview", "target-instance-rule"),
}


def _panel(board: Board) -> Board:
    return next(panels(board))


def _variable(name: str) -> Callable[[Board], Board]:
    return lambda board: next(one for one in board["templating"]["list"] if one["name"] == name)


def _expression(text: str) -> Callable[[Board], None]:
    return lambda board: _panel(board)["targets"][0].update(expr=text)


def _selected(matchers: str) -> str:
    return f"sum(rate(queueoperator_jobs_finished_total{{{matchers}}}[$__rate_interval]))"


BROKEN: Final[dict[str, Callable[[Board], Any]]] = {
    "template-datasource-rule": lambda b: _variable("datasource")(b).update(name="prometheus"),
    "template-job-rule": lambda b: _variable("job")(b).update(allValue=".*"),
    "template-instance-rule": lambda b: b["templating"]["list"].remove(_variable("instance")(b)),
    "template-label-promql-rule": lambda b: _variable("job")(b).update(
        query="label_values(up{, job)"
    ),
    "template-on-time-change-reload-rule": lambda b: _variable("job")(b).update(refresh=1),
    "panel-datasource-rule": lambda b: _panel(b).pop("datasource"),
    "panel-title-description-rule": lambda b: _panel(b).update(description=""),
    "panel-units-rule": lambda b: _panel(b)["fieldConfig"]["defaults"].update(unit="jobs"),
    "panel-no-targets-rule": lambda b: _panel(b).update(targets=[]),
    "target-logql-rule": lambda b: _panel(b)["targets"][0]["datasource"].update(type="loki"),
    "target-logql-auto-rule": lambda b: _panel(b)["targets"][0]["datasource"].update(type="loki"),
    "target-promql-rule": _expression("sum(rate("),
    "target-rate-interval-rule": _expression('rate(x_total{job=~"$job"}[5m])'),
    "target-job-rule": _expression(_selected('instance=~"$instance"')),
    "target-instance-rule": _expression(_selected('job=~"$job"')),
    "target-counter-agg-rule": _expression('x_total{job=~"$job", instance=~"$instance"}'),
    "uneditable-dashboard": lambda b: b.update(editable=True),
}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", BOARDS)
def test_a_dashboard_keeps_each_rule_of_the_linter(name: str, rule: str) -> None:
    complaints = list(RULES[rule](BOARDS[name]))
    if (name, rule) in NO_INSTANCES:
        assert complaints, "it keeps the rule: take it off the list"
    else:
        assert complaints == []


@pytest.mark.parametrize("rule", RULES)
def test_each_rule_notices_a_dashboard_that_breaks_it(rule: str) -> None:
    board = json.loads(json.dumps(BOARDS["workers"]))
    BROKEN[rule](board)
    assert list(RULES[rule](board)) != []


def test_there_are_the_rules_of_the_linter_and_no_others() -> None:
    assert len(RULES) == 17
    assert set(BROKEN) == set(RULES)


@pytest.mark.parametrize("name", BOARDS)
def test_no_two_panels_overlap_or_share_an_id_and_each_row_is_full(name: str) -> None:
    board = BOARDS[name]
    taken: set[tuple[int, int]] = set()
    for panel in panels(board):
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert max(x for x, _ in cells) < 24, panel["title"]
        assert not cells & taken, panel["title"]
        taken |= cells
    numbers = [panel["id"] for panel in board["panels"]]
    assert len(numbers) == len(set(numbers))


@pytest.mark.parametrize("name", BOARDS)
def test_titles_are_unique_and_no_metric_stands_without_matchers(name: str) -> None:
    titles = [panel["title"] for panel in panels(BOARDS[name])]
    assert len(titles) == len(set(titles))
    found = {title: without_selectors(target["expr"]) for title, target in targets(BOARDS[name])}
    assert {title: bare for title, bare in found.items() if bare} == {}


@pytest.mark.parametrize("name", BOARDS)
def test_a_legend_names_labels_that_the_expression_keeps(name: str) -> None:
    for title, target in targets(BOARDS[name]):
        expression = target["expr"]
        kept = set(re.findall(r"\w+", " ".join(re.findall(r"by \(([^)]*)\)", expression))))
        if expression.startswith("topk") and "by (" not in expression:
            kept = {"namespace"}  # of a recorded series
        named = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
        assert named <= kept, title
