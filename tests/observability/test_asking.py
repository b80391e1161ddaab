"""Expressions are asked as Grafana asks them, and values written as it writes them."""

import argparse
import math

import pytest

from observability.asking import Course, Look, NoAnswer, Period, Prometheus, filled, legend
from observability.draw import file_name
from observability.durations import seconds, shortened
from observability.running import free_port
from observability.units import written

HOUR = Period(start_s=0, end_s=3600)


def test_variables_are_filled_in_as_for_a_step_of_fifteen_seconds() -> None:
    expression = (
        'sum(rate(x{job=~"$job", namespace=~"$namespace"}[$__rate_interval])) + y[$__range]'
    )
    assert HOUR.step_s == 15
    assert filled(expression, HOUR, {"job": "night"}) == (
        'sum(rate(x{job=~"night", namespace=~".*"}[60000ms])) + y[3600000ms]'
    )


def test_a_rate_over_a_long_time_spans_its_steps() -> None:
    assert Period(start_s=0, end_s=86400).rate_interval_s == 360 + 15


@pytest.mark.parametrize(
    ("told", "name"),
    [
        ("{{namespace}} {{ type }}", "shop mail"),
        ("{{missing}} jobs", "jobs"),
        ("__auto", "namespace=shop, type=mail"),
    ],
)
def test_a_legend_has_the_labels_that_it_names(told: str, name: str) -> None:
    course = Course({"__name__": "x", "namespace": "shop", "type": "mail"}, [(0, 1)])
    assert legend(Look("board", "panel", "A", "x", told, instant=False), course) == name


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0, "s", "0 s"),
        (0.0123, "s", "12.3 ms"),
        (90, "s", "1.5 min"),
        (7200, "s", "2 hour"),
        (15900, "short", "15.9 K"),
        (0.9987, "percentunit", "99.9%"),
        (2048, "bytes", "2 KiB"),
        (19.3, "ops", "19.3 ops/s"),
        (-2500, "short", "-2.5 K"),
        (math.nan, "short", "No data"),
        (math.inf, "s", "∞"),
    ],
)
def test_values_have_three_digits_and_their_unit(value: float, unit: str, text: str) -> None:
    assert written(value, unit) == text


def test_as_many_decimals_as_told() -> None:
    assert written(0.99871, "percentunit", 2) == "99.87%"


def test_windows_and_offsets_become_shorter_and_nothing_else() -> None:
    assert shortened("rate(x[2m]) > 600 and y[1h] offset 1m", 10) == (
        "rate(x[12000ms]) > 600 and y[360000ms] offset 6000ms"
    )


def test_what_is_no_duration_is_refused_by_name() -> None:
    assert seconds("90s") == 90
    with pytest.raises(argparse.ArgumentTypeError, match="'soon' is no duration"):
        seconds("soon")


def test_a_prometheus_that_is_not_there_is_named() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(NoAnswer, match=url):
        Prometheus(url).at("up", 0)


def test_a_title_becomes_the_name_of_a_file() -> None:
    assert file_name("Wait for a worker, all attempts") == "wait-for-a-worker-all-attempts"
