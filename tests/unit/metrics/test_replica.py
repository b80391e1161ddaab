"""What is shown of one replica, and of the database by one of them."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from prometheus_client import CollectorRegistry
from tests.unit.metrics import exposition
from tests.unit.metrics.exposition import key
from tests.unit.queue.conftest import ManualClock

from queue_operator.backends.server_figures import DatabaseFigures, PoolUsage
from queue_operator.domain.errors import Unavailable
from queue_operator.metrics.controlling import ControllerFigures
from queue_operator.metrics.lag import INTERVAL_S, watch_lag
from queue_operator.metrics.replica import SURVEY_S, ReplicaFigures, Survey
from queue_operator.metrics.replica_table import LAG_BUCKETS_S, REPLICA


@dataclass
class Store:
    """A pool and a database as the test says."""

    usage: PoolUsage = field(default_factory=lambda: PoolUsage(idle=1, busy=2, most=8, waiters=3))
    waited: Callable[[float], None] | None = None
    answer: DatabaseFigures | Exception = field(default_factory=DatabaseFigures)
    looks: int = 0

    def pool_usage(self) -> PoolUsage:
        return self.usage

    def on_wait(self, observe: Callable[[float], None]) -> None:
        self.waited = observe

    async def database_figures(self) -> DatabaseFigures:
        self.looks += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


SEEN = DatabaseFigures(
    size_bytes=7,
    table_bytes={"job": 5},
    dead_rows={"job": 4},
    oldest_transaction_s=1.5,
    connections={"active": 2, "other": 0},
)


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


def names(found: exposition.Samples) -> set[str]:
    return {name for name, _ in found}


def test_the_pool_is_told_of_with_how_long_was_waited(registry: CollectorRegistry) -> None:
    store = Store()
    ReplicaFigures(registry, store)
    assert store.waited is not None
    for seconds in (0.0002, 3.0):
        store.waited(seconds)
    found = exposition.of(registry)
    assert found[key("queueoperator_store_connections", state="idle")] == 1
    assert found[key("queueoperator_store_connections", state="busy")] == 2
    assert found[key("queueoperator_store_connections_max")] == 8
    assert found[key("queueoperator_store_connection_waiters")] == 3
    wait = "queueoperator_store_connection_wait_seconds"
    assert found[key(f"{wait}_bucket", le="0.001")] == 1
    assert found[key(f"{wait}_bucket", le="5.0")] == 2
    assert found[key(f"{wait}_sum")] == pytest.approx(3.0002)


def test_the_process_is_told_of(registry: CollectorRegistry) -> None:
    ReplicaFigures(registry)
    found = exposition.of(registry)
    assert found[key("process_resident_memory_bytes")] > 1e6
    assert found[key("process_cpu_seconds_total")] > 0
    assert {"process_open_fds", "python_gc_collections_total", "python_info"} <= names(found)


async def test_a_late_timer_is_seen_in_the_histogram(registry: CollectorRegistry) -> None:
    figures, clock = ReplicaFigures(registry), ManualClock()
    async with figures.watching(clock):
        assert await clock.skip() == INTERVAL_S
        # Before the timer's task has its turn, time passes.
        clock.now_s += 0.2
        assert await clock.skip() == pytest.approx(INTERVAL_S)
        assert await clock.skip() == pytest.approx(INTERVAL_S)
    found = exposition.of(registry)
    lag = "queueoperator_event_loop_lag_seconds"
    assert found[key(f"{lag}_count", process="server")] == 2
    assert found[key(f"{lag}_bucket", process="server", le="0.1")] == 1
    assert found[key(f"{lag}_bucket", process="server", le="0.25")] == 2
    assert found[key(f"{lag}_sum", process="server")] == pytest.approx(0.2)


async def test_a_clock_that_goes_back_is_not_taken_for_haste() -> None:
    seen: list[float] = []
    clock = ManualClock()
    watching = asyncio.create_task(watch_lag(seen.append, clock))
    await clock.skip()
    clock.now_s -= 5
    await clock.skip()
    watching.cancel()
    assert all(late_s >= 0 for late_s in seen)
    assert seen


def test_the_controller_is_told_of_where_one_runs(registry: CollectorRegistry) -> None:
    figures: list[ControllerFigures | None] = [None]
    ReplicaFigures(registry, controller=lambda: figures[-1])
    assert not [name for name in names(exposition.of(registry)) if "controller" in name]
    figures.append(ControllerFigures(up=False, restarts=2, over_quota=3, refused_namespaces=1))
    found = exposition.of(registry)
    assert found[key("queueoperator_controller_up")] == 0
    assert found[key("queueoperator_controller_restarts_total")] == 2
    assert found[key("queueoperator_controller_over_quota_resources")] == 3
    assert found[key("queueoperator_controller_refused_namespaces")] == 1
    # What never happened has no time, and a process that is gone no memory.
    assert not names(found) & {
        "queueoperator_controller_last_comparison_timestamp_seconds",
        "queueoperator_controller_last_comparison_seconds",
        "queueoperator_controller_resident_memory_bytes",
    }


def test_every_figure_of_the_controller_has_its_name(registry: CollectorRegistry) -> None:
    figures = ControllerFigures(
        up=True,
        restarts=0,
        over_quota=0,
        refused_namespaces=0,
        owned_namespaces=1,
        intake_backlog=2,
        status_backlog=3,
        status_lag_s=4.5,
        status_writes={"written": 5},
        api_requests={"200": 6, "429": 7},
        throttled=7,
        watch_restarts={"queuejobs": 8},
        compared_at_s=9.0,
        comparison_s=10.0,
        lag_counts=(1, *(0,) * len(LAG_BUCKETS_S[1:]), 2),
        lag_total_s=30.0,
        cpu_s=11.0,
        resident_bytes=12,
    )
    ReplicaFigures(registry, controller=lambda: figures)
    found = exposition.of(registry)
    prefix = "queueoperator_controller_"
    plain = {
        "up": 1,
        "owned_namespaces": 1,
        "intake_backlog": 2,
        "status_backlog": 3,
        "status_lag_seconds": 4.5,
        "throttled_total": 7,
        "last_comparison_timestamp_seconds": 9,
        "last_comparison_seconds": 10,
        "cpu_seconds_total": 11,
        "resident_memory_bytes": 12,
    }
    assert {name: found[key(prefix + name)] for name in plain} == plain
    assert found[key(f"{prefix}status_writes_total", result="written")] == 5
    assert found[key(f"{prefix}api_requests_total", code="429")] == 7
    assert found[key(f"{prefix}watch_restarts_total", resource="queuejobs")] == 8
    lag = "queueoperator_event_loop_lag_seconds"
    assert found[key(f"{lag}_bucket", process="controller", le="0.001")] == 1
    assert found[key(f"{lag}_bucket", process="controller", le="10.0")] == 1
    assert found[key(f"{lag}_count", process="controller")] == 3
    shown = {metric.name for metric in REPLICA if "controller" in metric.name}
    assert shown == {name for name in names(found) if name.startswith(prefix)}


async def test_the_database_is_told_of_by_whoever_shows_it(registry: CollectorRegistry) -> None:
    store, clock, shows = Store(answer=SEEN), ManualClock(), [False]
    async with Survey(registry, store, clock, lambda: shows[-1]).looking():
        await clock.skip()
        assert (store.looks, exposition.of(registry)) == (0, {})
        shows.append(True)
        await clock.skip()
        await clock.skip()
        found = exposition.of(registry)
        assert found[key("queueoperator_database_size_bytes")] == 7
        assert found[key("queueoperator_database_table_bytes", table="job")] == 5
        assert found[key("queueoperator_database_dead_rows", table="job")] == 4
        assert found[key("queueoperator_database_oldest_transaction_seconds")] == 1.5
        assert found[key("queueoperator_database_connections", state="active")] == 2
        assert found[key("queueoperator_database_connections", state="other")] == 0
        # Whoever is not the one any more shows nothing at once, whatever it found.
        shows.append(False)
        assert exposition.of(registry) == {}


async def test_the_database_is_not_looked_at_more_often_than_need_be(
    registry: CollectorRegistry,
) -> None:
    store, clock = Store(), ManualClock()
    async with Survey(registry, store, clock, lambda: True).looking():
        while clock.now_s < 2 * SURVEY_S:
            exposition.of(registry)
            await clock.skip()
    assert store.looks == 2


async def test_what_the_role_may_not_see_is_absent(registry: CollectorRegistry) -> None:
    survey = Survey(registry, Store(), ManualClock(), lambda: True)
    await survey.look()
    assert exposition.of(registry) == {}


@pytest.mark.parametrize("failure", [Unavailable("down"), ValueError("a fault of ours")])
async def test_a_failed_look_takes_the_figures_back_and_is_told_once(
    registry: CollectorRegistry, caplog: pytest.LogCaptureFixture, failure: Exception
) -> None:
    store = Store(answer=SEEN)
    survey = Survey(registry, store, ManualClock(), lambda: True)
    await survey.look()
    store.answer = failure
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            await survey.look()
    assert exposition.of(registry) == {}
    assert len(caplog.records) == 1
    store.answer = SEEN
    await survey.look()
    assert exposition.of(registry) != {}
