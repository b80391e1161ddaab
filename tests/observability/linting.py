"""The rules of Grafana's dashboard-linter, all 17, by their names there. Each gives its complaints.

They are written anew from https://github.com/grafana/dashboard-linter, and are stricter in that
they look at panels of every type.
"""

import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from tests.observability.promql import faults, selectors

Board = dict[str, Any]
Rule = Callable[[Board], Iterator[str]]

UNITS: Final = {
    *("none", "short", "percent", "percentunit", "bytes", "s", "ms"),
    *("ops", "reqps", "wps", "rps", "opm", "rpm", "bool"),
}
"""Of the linter's list, those that make sense here."""
_FUNCTIONS: Final = {"label_names", "label_values", "metrics", "query_result"}
_QUERY: Final = re.compile(r"^([a-z_]+)\((.+)\)$")


def panels(board: Board) -> Iterator[Board]:
    yield from (panel for panel in board["panels"] if panel["type"] != "row")


def targets(board: Board) -> Iterator[tuple[str, Board]]:
    """Each target with the title of its panel."""
    for panel in panels(board):
        for target in panel.get("targets", ()):
            yield panel.get("title", ""), target


def _variables(board: Board, kind: str) -> list[Board]:
    return [one for one in board["templating"]["list"] if one["type"] == kind]


def template_datasource(board: Board) -> Iterator[str]:
    found = _variables(board, "datasource")
    if [one["name"] for one in found] != ["datasource"]:
        yield "there is not one variable `datasource`"
    for one in found:
        if one["label"] != "Data source" or one["query"] != "prometheus":
            yield f"variable {one['name']} is labelled {one['label']} and finds {one['query']}"


def _template(name: str) -> Rule:
    def rule(board: Board) -> Iterator[str]:
        for one in board["templating"]["list"]:
            if one["name"] == name:
                yield from _misfits(one, name)
                return
        yield f"there is no variable {name}"

    return rule


def _misfits(variable: Board, name: str) -> Iterator[str]:
    wanted = {
        "type": "query",
        "label": name.capitalize(),
        "multi": True,
        "allValue": ".+",
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
    }
    for key, value in wanted.items():
        if variable.get(key) != value:
            yield f"{key} of variable {name} is {variable.get(key)}, not {value}"


def template_label_promql(board: Board) -> Iterator[str]:
    for one in _variables(board, "query"):
        found = _QUERY.match(one["query"])
        if found is None or found[1] not in _FUNCTIONS:
            yield f"variable {one['name']} is no query of labels: {one['query']}"
        elif wrong := _parsed([found[2].rsplit(",", 1)[0]]):
            yield f"variable {one['name']}: {wrong}"


def template_on_time_change_reload(board: Board) -> Iterator[str]:
    for one in _variables(board, "query"):
        if one["refresh"] != 2:
            yield f"variable {one['name']} is not read again when the time changes"


def panel_datasource(board: Board) -> Iterator[str]:
    places = [
        *((panel.get("title", ""), panel) for panel in panels(board)),
        *targets(board),
    ]
    for title, place in places:
        if place.get("datasource", {}).get("uid") != "${datasource}":
            yield f"{title} does not use the variable datasource"


def panel_title_description(board: Board) -> Iterator[str]:
    for panel in panels(board):
        if not panel.get("title") or not panel.get("description"):
            yield f"a panel has title {panel.get('title')} and text {panel.get('description')}"


def panel_units(board: Board) -> Iterator[str]:
    for panel in panels(board):
        unit = panel["fieldConfig"]["defaults"].get("unit")
        if unit not in UNITS:
            yield f"{panel['title']} has the unit {unit}"


def panel_no_targets(board: Board) -> Iterator[str]:
    for panel in panels(board):
        if not panel.get("targets"):
            yield f"{panel['title']} asks for nothing"


def _no_loki(board: Board) -> Iterator[str]:
    """The linter's rules for LogQL look at targets of Loki only. Ours have none."""
    for title, target in targets(board):
        if target["datasource"]["type"] != "prometheus":
            yield f"{title} asks {target['datasource']['type']}, for which there is no rule here"


def target_promql(board: Board) -> Iterator[str]:
    if wrong := _parsed([target["expr"] for _, target in targets(board)]):
        yield wrong
    for title, target in targets(board):
        if not target["expr"]:
            yield f"{title} has an empty expression"


def _parsed(expressions: list[str]) -> str:
    with tempfile.TemporaryDirectory() as folder:
        return faults(expressions, Path(folder))


def target_rate_interval(board: Board) -> Iterator[str]:
    for title, target in targets(board):
        for one in selectors(target["expr"]):
            if one.call in {"rate", "irate"} and one.window != "$__rate_interval":
                yield f"{title}: {one.call} over {one.window}"


def _target(name: str) -> Rule:
    def rule(board: Board) -> Iterator[str]:
        for title, target in targets(board):
            for one in selectors(target["expr"]):
                if one.matchers.get(name) != ("=~", f"${name}"):
                    yield f"{title}: {one.metric} is not of the chosen {name}"

    return rule


def target_counter_agg(board: Board) -> Iterator[str]:
    for title, target in targets(board):
        for one in selectors(target["expr"]):
            counts = one.metric.endswith("_total")
            if counts and (one.call not in {"rate", "irate", "increase"} or not one.window):
                yield f"{title}: counter {one.metric} is shown as it is"


def uneditable(board: Board) -> Iterator[str]:
    if board["editable"] is not False:
        yield "it can be edited"


RULES: Final[Mapping[str, Rule]] = {
    "template-datasource-rule": template_datasource,
    "template-job-rule": _template("job"),
    "template-instance-rule": _template("instance"),
    "template-label-promql-rule": template_label_promql,
    "template-on-time-change-reload-rule": template_on_time_change_reload,
    "panel-datasource-rule": panel_datasource,
    "panel-title-description-rule": panel_title_description,
    "panel-units-rule": panel_units,
    "panel-no-targets-rule": panel_no_targets,
    "target-logql-rule": _no_loki,
    "target-logql-auto-rule": _no_loki,
    "target-promql-rule": target_promql,
    "target-rate-interval-rule": target_rate_interval,
    "target-job-rule": _target("job"),
    "target-instance-rule": _target("instance"),
    "target-counter-agg-rule": target_counter_agg,
    "uneditable-dashboard": uneditable,
}
