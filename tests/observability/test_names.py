"""Whatever panels, rules and alerts ask for is a metric that there is, with labels that it has."""

import json
from collections.abc import Iterator
from typing import Final

import pytest
from tests.observability.linting import targets
from tests.observability.names import NAMES, Known
from tests.observability.promql import grouping, selectors, without_selectors

from observability.alerts_operator import ALL
from observability.generated import DASHBOARDS
from observability.rules import Alert, Record, filled, selected

TARGET: Final = {"job", "instance", "namespace", "pod"}
"""Labels that Prometheus gives: the namespace is a worker's pod's."""
_SUFFIXES: Final = {"_bucket": {"le"}, "_count": set(), "_sum": set()}
RECORDED: Final = {
    rule.name: Known("gauge", ("job", "namespace"))
    for group in ALL
    for rule in group.rules
    if isinstance(rule, Record)
}


def expressions() -> Iterator[tuple[str, str]]:
    """Each with where it is."""
    for group in ALL:
        for rule in group.rules:
            yield rule.name, filled(selected(rule.expression))
    for board in DASHBOARDS:
        for title, target in targets(json.loads(board.text())):
            yield f"{board.name}: {title}", target["expr"]


def labels_of(metric: str) -> set[str]:
    """Raises KeyError for a metric that nobody shows."""
    known = {**NAMES, **RECORDED}
    if metric in known:
        return {*known[metric].labels, *TARGET}
    for suffix, more in _SUFFIXES.items():
        base = metric.removesuffix(suffix)
        if base != metric and base in known and known[base].kind == "histogram":
            return {*known[base].labels, *TARGET, *more}
    raise KeyError(metric)


EXPRESSIONS: Final = list(expressions())


@pytest.mark.parametrize("expression", {text: None for _, text in EXPRESSIONS})
def test_metrics_and_labels_of_an_expression_are_there(expression: str) -> None:
    found = list(selectors(expression))
    assert found or expression == "vector(0)"
    assert without_selectors(expression) == []
    there: set[str] = set()
    for one in found:
        assert set(one.matchers) <= labels_of(one.metric), one.metric
        there |= labels_of(one.metric)
    assert grouping(expression) - {""} <= there


def test_every_metric_but_those_that_only_explain_is_seen_somewhere() -> None:
    used = {one.metric for _, text in EXPRESSIONS for one in selectors(text)}
    bases = {metric.removesuffix(suffix) for metric in used for suffix in ("", *_SUFFIXES)}
    assert sorted(set(NAMES) - bases) == []


def test_every_recorded_series_is_read_by_something() -> None:
    used = {one.metric for _, text in EXPRESSIONS for one in selectors(text)}
    assert sorted(set(RECORDED) - used) == []


def test_alerts_have_short_summaries_and_a_description() -> None:
    for group in ALL:
        for alert in group.rules:
            if isinstance(alert, Alert):
                assert 0 < len(alert.summary) <= 80, alert.name
                assert alert.description, alert.name
