"""The endpoint serves what was counted, and never an outdated depth."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
from tests.unit.metrics import exposition
from tests.unit.metrics.exposition import key

from queue_operator import __version__
from queue_operator.backends.protocol import QueueDepth
from queue_operator.domain.errors import Unavailable
from queue_operator.domain.states import JobState
from queue_operator.metrics.exporter import Exporter, Metrics
from queue_operator.metrics.registry import METRICS, Kind
from queue_operator.queue.protocol import StreamSpec, StreamUsage
from queue_operator.settings import MetricsSettings

SETTINGS = MetricsSettings(host="127.0.0.1", port=0, depth_interval_s=5)


@dataclass
class Store:
    """A store whose depth can be set, and taken away."""

    depth: QueueDepth | Exception = field(default_factory=QueueDepth)

    async def queue_depth(self) -> QueueDepth:
        if isinstance(self.depth, Exception):
            raise self.depth
        return self.depth

    def usage(self) -> list[StreamUsage]:
        spec = StreamSpec(assignee_id="w", capacity=10, namespace="ns")
        busy = StreamUsage(spec=spec, busy=4, draining=False)
        leaving = StreamUsage(spec=spec, busy=1, draining=True)
        return [busy, leaving]


@dataclass
class StepClock:
    """Sleeps until it is told to go on."""

    steps: asyncio.Queue[float] = field(default_factory=asyncio.Queue)
    go_on: asyncio.Event = field(default_factory=asyncio.Event)

    def monotonic(self) -> float:
        return 0.0

    async def sleep(self, delay_s: float) -> None:
        self.steps.put_nowait(delay_s)
        await self.go_on.wait()
        self.go_on.clear()


@dataclass
class Running:
    exporter: Exporter
    store: Store
    clock: StepClock

    async def next_look(self) -> None:
        self.clock.go_on.set()
        assert await self.clock.steps.get() == 5

    async def scrape(self) -> exposition.Samples:
        return await asyncio.to_thread(exposition.scraped, self.exporter.port)


@pytest.fixture
async def running() -> AsyncIterator[Running]:
    store, clock = Store(), StepClock()
    metrics = Metrics("replica-1")
    exporter = Exporter(metrics, SETTINGS, clock, depths=store, streams=store)
    await exporter.start()
    await clock.steps.get()
    yield Running(exporter, store, clock)
    await exporter.stop()


async def test_depths_and_slots_are_served(running: Running) -> None:
    running.store.depth = QueueDepth(
        jobs={
            ("ns", "mail", JobState.INITIAL_PENDING): 7,
            ("ns", "mail", JobState.DEAD_LETTER): 2,
            ("ns", "scan", JobState.RUNNING): 1,
        },
        oldest_age_s={("ns", "mail"): 12.5},
        waiting_lanes=4,
    )
    await running.next_look()
    found = await running.scrape()
    labels = {"namespace": "ns", "type": "mail"}
    assert found[key("queueoperator_jobs", **labels, state="initial_pending")] == 7
    assert found[key("queueoperator_jobs", **labels, state="dead_letter")] == 2
    assert found[key("queueoperator_jobs", **labels, state="completed")] == 0
    assert found[key("queueoperator_oldest_runnable_job_age_seconds", **labels)] == 12.5
    assert found[key("queueoperator_waiting_lanes")] == 4
    assert found[key("queueoperator_worker_streams", namespace="ns")] == 2
    slots = {
        state: found[key("queueoperator_worker_slots", namespace="ns", state=state)]
        for state in ("busy", "free", "draining")
    }
    assert slots == {"busy": 5, "free": 6, "draining": 9}
    assert found[key("queueoperator_build_info", version=__version__, replica="replica-1")] == 1


@pytest.mark.parametrize("failure", [Unavailable("down"), ValueError("a fault of ours")])
async def test_gauges_are_withdrawn_while_the_store_is_away(
    running: Running, failure: Exception
) -> None:
    running.store.depth = QueueDepth(jobs={("ns", "mail", JobState.RUNNING): 1})
    await running.next_look()
    jobs = key("queueoperator_jobs", namespace="ns", type="mail", state="running")
    assert (await running.scrape())[jobs] == 1
    running.store.depth = failure
    await running.next_look()
    found = await running.scrape()
    assert not [name for name, _ in found if name == "queueoperator_jobs"]
    assert found[key("queueoperator_worker_streams", namespace="ns")] == 2
    running.store.depth = QueueDepth(jobs={("ns", "mail", JobState.RUNNING): 3})
    await running.next_look()
    assert (await running.scrape())[jobs] == 3


async def test_an_outage_is_told_once(running: Running, caplog: pytest.LogCaptureFixture) -> None:
    for outage in ("refuses this user", "is down"):
        running.store.depth = Unavailable(outage)
        for _ in range(3):
            await running.next_look()
        running.store.depth = QueueDepth()
        await running.next_look()
    told = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert told == [
        f"how many jobs there are is not known: {outage}"
        for outage in ("refuses this user", "is down")
    ]


async def test_a_look_that_takes_long_does_not_replace_a_later_one(running: Running) -> None:
    under_way: list[asyncio.Future[None]] = []
    numbers = iter(range(2))

    async def queue_depth() -> QueueDepth:
        number = next(numbers)
        under_way.append(asyncio.get_running_loop().create_future())
        await under_way[-1]
        return QueueDepth(jobs={("ns", "mail", JobState.INITIAL_PENDING): number})

    running.store.queue_depth = queue_depth  # type: ignore[method-assign]
    refreshing = [asyncio.create_task(running.exporter.refresh()) for _ in range(2)]
    for _ in refreshing:
        for _ in range(5):
            await asyncio.sleep(0)
        # The latest of those that are under way is answered first.
        under_way.pop().set_result(None)
    await asyncio.wait(refreshing)
    waiting = key("queueoperator_jobs", namespace="ns", type="mail", state="initial_pending")
    assert (await running.scrape())[waiting] == 1


async def test_types_beyond_the_budget_are_summed(running: Running) -> None:
    running.store.depth = QueueDepth(
        jobs={("ns", f"type-{n}", JobState.RUNNING): n for n in range(1, 301)}
    )
    await running.next_look()
    found = await running.scrape()
    shown = {dict(labels)["type"] for name, labels in found if name == "queueoperator_jobs"}
    assert len(shown) == 201
    assert {"type-300", "type-101", "other"} <= shown
    other = key("queueoperator_jobs", namespace="ns", type="other", state="running")
    assert found[other] == sum(range(1, 101))
    assert found[key("queueoperator_unnamed_types")] == 100


async def test_a_taken_port_is_an_error(running: Running) -> None:
    settings = MetricsSettings(host="127.0.0.1", port=running.exporter.port)
    with pytest.raises(OSError, match="the port is taken; set QUEUE_OPERATOR_METRICS__PORT"):
        await Exporter(Metrics(), settings, StepClock()).start()


def test_names_follow_the_conventions() -> None:
    names = [metric.name for metric in METRICS]
    assert len(set(names)) == len(names)
    for metric in METRICS:
        assert metric.name.endswith("_total") == (metric.kind is Kind.COUNTER), metric.name
        assert bool(metric.buckets) == (metric.kind is Kind.HISTOGRAM), metric.name
        assert metric.buckets == tuple(sorted(metric.buckets)), metric.name
        assert metric.help.endswith("."), metric.name
