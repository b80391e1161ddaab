"""Real servers and workers, seen by a real Prometheus: in good health nobody is woken, and the
faults of `examples/04-observability` are told.

The health lasts an hour, with the rules as they are shipped, where QUEUE_OPERATOR_TEST_FULL=1, and
so many seconds with QUEUE_OPERATOR_SOAK_SECONDS. Else it lasts less than a minute, and windows are
ten times shorter.
"""

import os
import time
from collections.abc import Iterator
from typing import Final

import pytest
from tests.integration.metrics.fleet import Totals
from tests.observability.soak_sources import compare
from tests.observability.soaking import (
    HANDLERS,
    Load,
    absences,
    alerts,
    await_calm,
    await_sums,
    change_replicas,
)

from observability.alerts_operator import ALERTS
from observability.asking import EVERYTHING, Period, looks
from observability.draw import boards
from observability.incident import FAULTS, Fault, Traffic, play
from observability.local import NAMESPACE, QUICK, REAL, Local, local

CALM_S: Final = 3.0
FULL: Final = os.environ.get("QUEUE_OPERATOR_TEST_FULL") == "1"
ASKED_S: Final = os.environ.get("QUEUE_OPERATOR_SOAK_SECONDS")
SOAK_S: Final = float(ASKED_S or (3600 if FULL else 40))
PACE: Final = REAL if ASKED_S or FULL else QUICK


def _plant(traffic: Traffic, queue: Local) -> None:
    for fault in FAULTS:
        fault.plant(traffic, queue)


def _mend(traffic: Traffic, queue: Local) -> None:
    for fault in FAULTS:
        fault.mend(traffic, queue)


# The example plants one after the other, which takes a reader's time. That an alert speaks of no
# other fault than its own is what `test_alerts` asks.
AT_ONCE: Final = Fault(
    name="at-once",
    story="All of them.",
    plant=_plant,
    mend=_mend,
    alerts=frozenset[str]().union(*(fault.alerts for fault in FAULTS)),
)


@pytest.fixture(scope="module")
def quick() -> Iterator[Local]:
    with local() as queue:
        yield queue


@pytest.fixture(scope="module")
def soaked(request: pytest.FixtureRequest) -> Iterator[Local]:
    if PACE is QUICK:
        yield request.getfixturevalue("quick")
    else:
        with local(PACE) as queue:
            yield queue


@pytest.mark.timeout(SOAK_S + 600)
def test_a_healthy_queue_wakes_nobody_and_its_figures_add_up(soaked: Local) -> None:
    """Each counter is compared with the history of the jobs, after one run with all of it."""
    soaked.work("index-0", "index", 4, HANDLERS)
    soaked.await_seen()
    began = time.time()
    load = Load(soaked)
    with load.running():
        change_replicas(soaked, began + SOAK_S)
    expected = await_sums(soaked, began)
    compare(soaked, load, began)
    await_calm(soaked)
    period = Period(start_s=began, end_s=time.time(), scrape_s=0.5, points=10_000)
    pending = alerts(soaked, period, "pending")
    away = absences(soaked, period)
    print(f"{load.submitted} jobs in {period.end_s - began:.0f} s; pending: {pending}; {away}")
    assert alerts(soaked, period, "firing") == {}, (pending, away)
    _assert_that_much_happened(soaked, load, expected, period)


def _assert_that_much_happened(queue: Local, load: Load, expected: Totals, period: Period) -> None:
    attempts = "queueoperator_job_attempts_total", NAMESPACE, "index-page"
    assert expected[*attempts, "failed", "temporary"] == load.stumbling > 0
    completed = sum(n for key, n in expected.items() if key[-1] == "completed")
    assert completed == load.submitted
    rules = [one for group in queue.prometheus.api.get("rules")["groups"] for one in group["rules"]]
    assert {alert.name for alert in ALERTS} <= {one["name"] for one in rules}
    assert {one["health"] for one in rules} == {"ok"}
    replicas = queue.prometheus.api.over("queueoperator_build_info", period)
    assert len({one.labels["instance"] for one in replicas}) == 8


def test_alerts_speak_of_each_fault_and_every_expression_has_an_answer(quick: Local) -> None:
    assert [fault.name for fault in FAULTS] == ["failing-type", "dead-worker", "growing-backlog"]
    assert not quick.prometheus.firing() & AT_ONCE.alerts
    # Waits for all of their alerts, and raises if they do not speak.
    [(_, period)] = play(quick, [AT_ONCE], calm_s=CALM_S, shown_s=0.0)
    found = _answers(quick, period)
    for title in ("Taken from workers", "Backlog", "Dead letters"):
        assert found[f"Queue Operator / Overview: {title}"], title


def _answers(queue: Local, period: Period) -> dict[str, int]:
    """How many series each panel gets. Raises NoAnswer for an expression that is refused."""
    found: dict[str, int] = {}
    for board in boards().values():
        for look in looks(board, period, EVERYTHING):
            name = f"{look.dashboard}: {look.panel}"
            found[name] = found.get(name, 0) + len(
                queue.prometheus.api.over(look.expression, period)
            )
    return found
