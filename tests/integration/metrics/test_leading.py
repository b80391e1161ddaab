"""Of several replicas on one store one shows the figures about the stored jobs."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from tests.unit.metrics import exposition
from tests.unit.metrics.exposition import key
from tests.waiting import together, until

from queue_operator.backends.postgres import PostgresBackend
from queue_operator.domain.job import Job
from queue_operator.metrics.exporter import Exporter, Metrics
from queue_operator.metrics.leading import Leader
from queue_operator.queue.clock import SystemClock
from queue_operator.settings import MetricsSettings

TTL_S = 0.3
LEADER = key("queueoperator_leader")
OWN = key("queueoperator_own")


@dataclass
class StoppedClock(SystemClock):
    """Stands still until it is told otherwise."""

    now: float = 0.0

    def monotonic(self) -> float:
        return self.now


async def test_one_leads_and_another_does_once_it_is_silent(store: PostgresBackend) -> None:
    clocks = [StoppedClock() for _ in range(5)]
    leaders = [Leader(store.figures, clock, TTL_S) for clock in clocks]
    await together(leader.beat() for leader in leaders)
    [first] = [leader for leader in leaders if leader.leads]
    await first.beat()
    assert first.leads
    others = [leader for leader in leaders if leader is not first]

    async def another_leads() -> bool:
        await together(leader.beat() for leader in others)
        return any(leader.leads for leader in others)

    await until(another_leads)
    # The first one was stopped, and goes on: it knows by its clock before it has asked.
    clocks[leaders.index(first)].now += TTL_S
    assert not first.leads
    await first.beat()
    assert [leader.leads for leader in leaders].count(True) == 1
    [second] = [leader for leader in others if leader.leads]
    await second.resign()
    assert not second.leads
    await first.beat()
    assert first.leads
    await first.resign()


async def test_whoever_does_not_lead_gives_nothing_back(store: PostgresBackend) -> None:
    leading, other = (Leader(store.figures, StoppedClock(), 600.0) for _ in range(2))
    await leading.beat()
    await other.beat()
    await other.resign()
    await store.figures.resign(other.holder)
    await other.beat()
    assert (leading.leads, other.leads) == (True, False)
    await leading.resign()


async def test_the_turn_is_never_two_at_once(store: PostgresBackend) -> None:
    for _ in range(30):
        holders = [Leader(None, StoppedClock(), 1.0).holder for _ in range(8)]
        won = await together(store.figures.lead(holder, 600.0) for holder in holders)
        # All of them may meet while the row is locked, but never two may have it.
        assert won.count(True) <= 1
        again = [await store.figures.lead(holder, 600.0) for holder in holders]
        assert again.count(True) == 1
        await store.figures.resign(holders[again.index(True)])


class Own(Collector):
    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily("queueoperator_own", "Of another part.", value=1.0)


async def test_only_the_leader_shows_what_is_the_same_everywhere(store: PostgresBackend) -> None:
    await store.enqueue_job(Job(id="one", type="mail", namespace="team"))
    settings = MetricsSettings(host="127.0.0.1", port=0, leader_s=600)
    exporters = []
    for name in ("a", "b"):
        metrics = Metrics(name)
        metrics.register(Own(), leader_only=True)
        exporter = Exporter(metrics, settings, SystemClock(), figures=store.figures)
        exporters.append(exporter)
        await exporter.start()
        await exporter.lead()
    first, second = exporters
    jobs = key("queueoperator_jobs", namespace="team", type="mail", state="initial_pending")
    assert await shown(first, LEADER, OWN, jobs) == [1, 1, 1]
    assert await shown(second, LEADER, OWN, jobs) == [0, None, None]
    await first.stop()
    await second.lead()
    assert await shown(second, LEADER, OWN, jobs) == [1, 1, 1]
    await second.stop()


async def shown(
    exporter: Exporter, *names: tuple[str, tuple[tuple[str, str], ...]]
) -> list[float | None]:
    found = await asyncio.to_thread(exposition.scraped, exporter.port)
    assert found[key("queueoperator_store_up")] == 1
    return [found.get(name) for name in names]
