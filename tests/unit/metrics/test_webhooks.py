"""What is shown of messages to callback URLs."""

import logging
from dataclasses import dataclass, field

import pytest
from prometheus_client import CollectorRegistry
from tests.unit.metrics import exposition
from tests.unit.metrics.exposition import key
from tests.unit.queue.conftest import ManualClock

from queue_operator.backends.webhooks import MessageStock
from queue_operator.domain.errors import Unavailable
from queue_operator.metrics.labels import MAX_NAMESPACES
from queue_operator.metrics.replica_table import DELIVERY_BUCKETS_S
from queue_operator.metrics.webhooks import SenderFigures, WebhookFigures

SENT = SenderFigures(
    outcomes={"delivered": 3, "retried": 0},
    seconds=(1, 2, *[0] * (len(DELIVERY_BUCKETS_S) - 2), 4),
    seconds_total=100.5,
    restarts=2,
    cpu_s=1.5,
    resident_bytes=7,
)


@dataclass
class Outbox:
    """Holds what the test says."""

    answer: MessageStock | Exception = field(default_factory=MessageStock)
    looks: int = 0

    async def stock(self) -> MessageStock:
        self.looks += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@dataclass
class World:
    outbox: Outbox = field(default_factory=Outbox)
    sender: SenderFigures | None = None
    leads: bool = True
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)

    def __post_init__(self) -> None:
        self.figures = WebhookFigures(
            self.registry,
            self.outbox,
            lambda: self.sender,
            ManualClock(),
            lambda: self.leads,
        )

    def shown(self) -> exposition.Samples:
        return exposition.of(self.registry)


def test_what_the_sender_counts() -> None:
    world = World(sender=SENT)
    found = world.shown()
    deliveries = "queueoperator_webhook_deliveries_total"
    assert found[key(deliveries, outcome="delivered")] == 3
    assert found[key(deliveries, outcome="retried")] == 0
    seconds = "queueoperator_webhook_delivery_seconds"
    assert found[key(f"{seconds}_bucket", le="0.01")] == 1
    assert found[key(f"{seconds}_bucket", le="60.0")] == 3
    assert found[key(f"{seconds}_count")] == 7
    assert found[key(f"{seconds}_sum")] == 100.5
    assert found[key("queueoperator_webhook_sender_restarts_total")] == 2
    assert found[key("queueoperator_webhook_sender_cpu_seconds_total")] == 1.5
    assert found[key("queueoperator_webhook_sender_resident_memory_bytes")] == 7


def test_without_a_sender_nothing_is_shown_of_one() -> None:
    assert World().shown() == {}


async def test_what_waits_is_shown_by_the_replica_that_leads() -> None:
    stock = MessageStock(pending={"a": 2}, failed={"b": 1}, oldest_due_s=4.5)
    world = World(Outbox(stock))
    await world.figures.look()
    assert world.shown() == {
        key("queueoperator_webhook_pending", namespace="a"): 2,
        key("queueoperator_webhook_pending", namespace="b"): 0,
        key("queueoperator_webhook_failed", namespace="a"): 0,
        key("queueoperator_webhook_failed", namespace="b"): 1,
        key("queueoperator_webhook_oldest_due_seconds"): 4.5,
    }
    world.leads = False
    assert world.shown() == {}
    await world.figures.look()
    assert world.outbox.looks == 1
    world.leads = True
    assert world.shown() == {}


async def test_namespaces_beyond_a_bound_are_one() -> None:
    many = {f"space-{number:03}": 2 for number in range(MAX_NAMESPACES)}
    world = World(Outbox(MessageStock(pending={**many, "z": 1}, failed={"y": 5, "x": 1})))
    await world.figures.look()
    found = world.shown()
    pending = [one for one in found if one[0] == "queueoperator_webhook_pending"]
    assert len(pending) == MAX_NAMESPACES + 1
    # `y` has most of all and takes a place.
    assert found[key("queueoperator_webhook_failed", namespace="y")] == 5
    assert found[key("queueoperator_webhook_pending", namespace="other")] == 3
    assert found[key("queueoperator_webhook_failed", namespace="other")] == 1


@pytest.mark.parametrize("error", [Unavailable("the store is away"), RuntimeError("a fault")])
async def test_what_is_not_known_is_not_shown_and_said_once(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(Outbox(MessageStock(pending={"a": 2})))
    await world.figures.look()
    assert world.shown()
    world.outbox.answer = error
    with caplog.at_level(logging.WARNING):
        await world.figures.look()
        await world.figures.look()
    assert world.shown() == {}
    assert len(caplog.records) == 1
