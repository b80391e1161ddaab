"""Each alert speaks of its fault within two minutes, and of nothing else. promtool computes it."""

import random
from itertools import accumulate
from pathlib import Path

import pytest
from tests.observability.prometheus_tests import asked, case, planted, promtool, with_target
from tests.observability.world import (
    APART,
    FAULTS,
    HEALTHY,
    MAIL,
    OPERATOR,
    STEP_S,
    WORKER,
    Age,
    Counter,
    Fault,
    Figures,
    Gauge,
    Series,
    attempts,
    finished,
)

from observability.alerts_operator import ALERTS

WITHIN_S = 120
HOUR = 3600 // STEP_S
DAY_MIN = 24 * 60


def test_every_alert_has_a_fault_that_it_speaks_of() -> None:
    assert {alert.name for alert in ALERTS} == set(FAULTS) | APART


def test_each_speaks_within_two_minutes_of_its_fault_and_of_no_other(tmp_path: Path) -> None:
    cases = []
    for name, fault in FAULTS.items():
        one = case(fault, fault_s=WITHIN_S)
        one["name"] = name
        one["promql_expr_test"] = [
            asked(fault.after_s - STEP_S, []),
            asked(fault.after_s + WITHIN_S, {name} | fault.also),
        ]
        cases.append(one)
    promtool(cases, tmp_path)


def _without(figures: Figures, part: str) -> Figures:
    return {name: series for name, series in figures.items() if part not in name}


def test_without_figures_only_the_absence_of_the_operator_is_told(tmp_path: Path) -> None:
    nothing = planted({})
    nothing["promql_expr_test"] = [asked(WITHIN_S, ["QueueOperatorAbsent"])]
    alone = case(
        Fault(), healthy={OPERATOR: _without(HEALTHY[OPERATOR], "controller")}, fault_s=WITHIN_S
    )
    alone["promql_expr_test"] = [asked(Fault().after_s + WITHIN_S, [])]
    bare: Figures = {"queueoperator_leader": Gauge(1), "queueoperator_store_up": Gauge(1)}
    unused = case(Fault(), healthy={OPERATOR: bare, WORKER: {}}, fault_s=WITHIN_S)
    unused["promql_expr_test"] = [asked(Fault().after_s + WITHIN_S, [])]
    promtool([nothing, alone, unused], tmp_path)


def test_too_many_samples_in_a_scrape_are_told(tmp_path: Path) -> None:
    name = with_target("scrape_samples_scraped", OPERATOR)
    one = planted({name: "24999x20 25001x8", with_target("up", OPERATOR): "1x30"})
    one["promql_expr_test"] = [
        asked(20 * STEP_S, []),
        asked(20 * STEP_S + WITHIN_S, ["QueueOperatorTooManySeries"]),
    ]
    promtool([one], tmp_path)


def _noisy(series: Series, traffic: list[float], rng: random.Random) -> list[float]:
    """An hour of it, unsteady; how much there is to do at each step is the same for all of them."""
    if isinstance(series, Counter):
        return [float(int(one)) for one in accumulate(series.rate * part for part in traffic)]
    if isinstance(series, Age):
        return [step * STEP_S - rng.uniform(0, 60) for step in range(HOUR + 1)]
    return [series.value * rng.choice((0.7, 1.0, 1.0, 1.3)) for _ in range(HOUR + 1)]


_STEADY = ("leader", "_up", "connected", "unnamed", "refused", "last_heartbeat")
_EVENTS = {
    finished("dead_letter"): (100,),
    attempts("lost"): (60, 61, 180),
    f"queueoperator_leases_expired_total{{{MAIL}}}": (60, 61, 180),
    "queueoperator_controller_restarts_total": (120,),
    'queueoperator_store_errors_total{method="claim",code="unavailable"}': (121, 122),
}


def test_an_hour_of_a_healthy_queue_wakes_nobody(tmp_path: Path) -> None:
    """With uneven traffic, a dead letter, a worker that dies, restarts, and a change of leader,
    with which the counters begin anew.
    """
    rng = random.Random(15)  # noqa: S311
    traffic = [STEP_S * rng.uniform(0.4, 1.6) for _ in range(HOUR + 1)]
    series: dict[str, str] = {}
    for target, figures in HEALTHY.items():
        series[with_target("up", target)] = f"1x{HOUR}"
        for name, one in figures.items():
            course = _noisy(one, traffic, rng)
            if any(word in name for word in _STEADY):
                course = [
                    step * STEP_S - 5 if isinstance(one, Age) else getattr(one, "value", 0.0)
                    for step in range(HOUR + 1)
                ]
            for at in _EVENTS.get(name, ()):
                course = [value + (step >= at) for step, value in enumerate(course)]
            if isinstance(one, Counter) and target == OPERATOR:
                course = [
                    value - course[150] if step >= 150 else value
                    for step, value in enumerate(course)
                ]
            words = [f"{value:g}" for value in course]
            if target == OPERATOR and "worker_" not in name and "leader" not in name:
                words[148:150] = ["stale", "_"]
            series[with_target(name, target)] = " ".join(words)
    hour = planted(series)
    hour["promql_expr_test"] = [asked(step * STEP_S, []) for step in range(HOUR + 1)]
    promtool([hour], tmp_path)


def test_one_dead_letter_wakes_nobody_while_prometheus_is_young(tmp_path: Path) -> None:
    """An average over the minutes that it has would tell of hundreds in three days."""
    few = {finished("completed"): "0+2x120", finished("dead_letter"): "0x12 1x108"}
    young = planted({with_target(name, OPERATOR): course for name, course in few.items()})
    young["input_series"].append({"series": with_target("up", OPERATOR), "values": "1x120"})
    young["promql_expr_test"] = [asked(step * STEP_S, []) for step in range(HOUR // 2)]
    promtool([young], tmp_path)


def _days(bad: float) -> dict[str, str]:
    """Three days, a sample a minute: of ten starts and ends a minute so many went wrong."""
    count = 3 * DAY_MIN
    wait = "queueoperator_job_wait_seconds"
    rates = {
        f'{wait}_bucket{{{MAIL},le="60.0"}}': 100 - bad * 10,
        f"{wait}_count{{{MAIL}}}": 100,
        finished("completed"): 100 - bad,
        finished("dead_letter"): bad,
    }
    courses = {with_target(name, OPERATOR): f"0+{rate}x{count}" for name, rate in rates.items()}
    return {**courses, with_target("up", OPERATOR): f"1x{count}"}


@pytest.mark.parametrize(
    ("bad", "told"),
    [(0.08, []), (0.15, ["QueueOperatorJobsDieSlowly", "QueueOperatorJobsStartLateSlowly"])],
)
def test_a_budget_that_is_burnt_slowly_is_told_after_days_and_wakes_nobody(
    bad: float, told: list[str], tmp_path: Path
) -> None:
    one = {**planted(_days(bad)), "interval": "1m"}
    one["promql_expr_test"] = [asked(3 * DAY_MIN * 60, told)]
    promtool([one], tmp_path, every_s=1800)
