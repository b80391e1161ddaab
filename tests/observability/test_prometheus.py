"""A real Prometheus, in whose world time passes fifteen times faster, scrapes planted figures."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
import yaml
from matplotlib.image import imread
from tests.observability.servers import FigureServer
from tests.observability.world import FAULTS, HEALTHY, OPERATOR, WORKER, Series

from observability.alerts_operator import ALL
from observability.asking import Period
from observability.draw import answered, boards, pictures
from observability.drawing import LIGHT, Shown, save, single
from observability.durations import seconds, shortened
from observability.rules import document, filled
from observability.running import RunningPrometheus, configuration
from queue_operator.devcluster.processes import wait_until

FACTOR: Final = 15.0
INTERVAL_S: Final = 1.0
"""Fifteen seconds of the world."""
CALM_S: Final = 14.0
"""Longer than the longest window that alerts of a moment look at."""
WITHIN_S: Final = 120 / FACTOR + INTERVAL_S
"""Two minutes, and a scrape that a busy machine made late."""
PATIENCE_S: Final = 60.0
# Each fault is by itself; those of a later round contradict one of an earlier round.
ROUNDS: Final = (
    {"QueueOperatorBacklogGrows", "QueueWorkerDown"},
    {"QueueOperatorNoWorkers"},
    {"QueueOperatorAbsent", "QueueOperatorReplicaDown"},
)
LATER: Final = {"QueueOperatorDeadLetters", *set().union(*ROUNDS)}


def fast_rules() -> str:
    rules: dict[str, Any] = yaml.safe_load(filled(document(ALL)))
    for group in rules["groups"]:
        for rule in group["rules"]:
            rule["expr"] = shortened(rule["expr"], FACTOR)
            if "for" in rule:
                rule["for"] = f"{seconds(rule['for']) / FACTOR * 1000:.0f}ms"
    return yaml.safe_dump(rules)


class Show:
    """The figures of the two targets, and who scrapes them."""

    def __init__(self, folder: Path) -> None:
        self.operator = FigureServer(HEALTHY[OPERATOR], FACTOR)
        self.worker = FigureServer(HEALTHY[WORKER], FACTOR)
        targets = [self.operator.address], [self.worker.address]
        config = configuration(*targets, "1s", ["rules.yaml"])
        self.prometheus = RunningPrometheus(folder, config, {"rules.yaml": fast_rules()})

    def told(self, start_s: float, end_s: float) -> dict[str, float]:
        """Alerts that fired in between, and since when."""
        period = Period(start_s=start_s, end_s=end_s, scrape_s=0.5, points=10_000)
        found = self.prometheus.api.over('ALERTS{alertstate="firing"}', period)
        return {one.labels["alertname"]: one.points[0][0] for one in found}

    def scrapes(self) -> bool:
        return len(self.prometheus.api.at("up == 1", time.time())) == len(HEALTHY)

    def plant(self, names: set[str]) -> None:
        operator: dict[str, Series] = {}
        worker: dict[str, Series] = {}
        down: set[str] = set()
        for name in names:
            fault = FAULTS[name]
            operator.update(fault.operator)
            worker.update(fault.worker)
            down.update(fault.down)
        self.operator.plant(operator, down=OPERATOR in down)
        self.worker.plant(worker, down=WORKER in down)


@pytest.fixture(scope="module")
def show(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Show]:
    """It has been calm for a while."""
    one = Show(tmp_path_factory.mktemp("prometheus"))
    with one.operator, one.worker, one.prometheus:
        one.prometheus.await_ready()
        # It looks for targets some seconds after its start.
        wait_until(one.scrapes, "the first scrapes", PATIENCE_S)
        began = time.time()
        wait_until(lambda: time.time() > began + CALM_S + 2 * INTERVAL_S, "some calm", PATIENCE_S)
        yield one


@pytest.fixture(scope="module")
def period(show: Show) -> Period:
    """The calm."""
    now = time.time()
    return Period(start_s=now - CALM_S, end_s=now, scrape_s=INTERVAL_S)


def test_nothing_is_told_while_all_is_well(show: Show, period: Period) -> None:
    assert show.told(period.start_s, period.end_s) == {}


@pytest.mark.parametrize("name", ["overview", "workers", "operator-database"])
def test_each_panel_becomes_a_picture_that_is_not_empty(
    show: Show, period: Period, name: str, tmp_path: Path
) -> None:
    board = boards()[name]
    shown = answered(board, show.prometheus.api, period)
    assert shown
    for number, one in enumerate(shown):
        file = tmp_path / f"{number}.png"
        save(single(one), file)
        place = one.panel["gridPos"]
        image = imread(file)
        assert image.shape[:2] == (place["h"] * 30, place["w"] * 56)
        background = image[-2, -2]
        assert (abs(image - background).sum(axis=2) > 0.2).mean() > 0.001, one.panel["title"]


def test_a_dashboard_is_drawn_as_a_whole_and_panel_by_panel(
    show: Show, period: Period, tmp_path: Path
) -> None:
    board = boards()["overview"]
    shown = answered(board, show.prometheus.api, period)
    # Two panels, as each is drawn once by itself above.
    files = pictures(board, shown[:2], tmp_path, "overview")
    assert [file.name for file in files] == [
        "overview.png",
        "overview-alerts.png",
        "overview-backlog.png",
    ]
    rows = max(one["gridPos"]["y"] + one["gridPos"]["h"] for one in board["panels"])
    assert imread(files[0]).shape[:2] == ((rows + 1) * 30, 24 * 56)


def _shown(show: Show, period: Period, board: str, title: str) -> Shown:
    found = answered(boards()[board], show.prometheus.api, period)
    return next(one for one in found if one.panel["title"] == title)


def test_the_lines_are_the_values(show: Show, period: Period) -> None:
    one = _shown(show, period, "overview", "Slots and what needs them")
    (axes,) = single(one, LIGHT).axes
    drawn = {line.get_label(): np.asarray(line.get_ydata()).tolist() for line in axes.get_lines()}
    assert drawn == {name: [value for _, value in course.points] for name, course in one.courses}
    assert set(drawn) == {"needed", "there", "busy"}
    assert set(drawn["needed"]) == {8.0}
    assert set(drawn["busy"]) == {6.0}


def test_stacked_lines_are_sums_of_those_below(show: Show, period: Period) -> None:
    one = _shown(show, period, "overview", "Jobs that are not finished")
    (axes,) = single(one).axes
    drawn = {
        line.get_label(): np.asarray(line.get_ydata()).tolist()[-1] for line in axes.get_lines()
    }
    assert drawn == {"cancelling": 0.0, "initial_pending": 8.0, "running": 14.0}


def test_a_stat_a_bar_and_a_table_show_values_with_their_unit(show: Show, period: Period) -> None:
    def texts(board: str, title: str) -> str:
        figure = single(_shown(show, period, board, title))
        parts = [*figure.texts, *(text for axes in figure.axes for text in axes.texts)]
        return "\n".join(part.get_text() for part in parts)

    assert "\n6" in texts("overview", "Running")
    assert "1 s" in texts("overview", "Oldest waiting job of each type")
    table = texts("overview", "Dead letters").split("\n")
    assert table[1:] == ["namespace", "shop", "type", "mail", "dead letters", "3"]


def test_each_fault_is_told_within_two_minutes_and_its_text_is_whole(show: Show) -> None:
    """Last in its file: it leaves the queue in ruins."""
    for names in (set(FAULTS) - LATER, *ROUNDS):
        began = time.time()
        show.plant(names)
        told = _awaited(show, names, began)
        late = {name: told[name] - began for name in names if told[name] > began + WITHIN_S}
        assert late == {}
        for one in show.prometheus.api.get("alerts")["alerts"]:
            for text in one["annotations"].values():
                assert not any(part in text for part in ("{{", "<no value>", "error expanding"))


def _awaited(show: Show, names: set[str], began_s: float) -> dict[str, float]:
    """Since when each alert fires; all of `names` do."""
    told: dict[str, float] = {}

    def all_told() -> bool:
        for name, since in show.told(began_s, time.time()).items():
            told.setdefault(name, since)
        return names <= set(told)

    wait_until(all_told, " and ".join(names), PATIENCE_S)
    return told
