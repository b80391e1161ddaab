"""What handlers wait for, on a store in memory."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from queue_operator.backends.memory import MemoryBackend
from queue_operator.backends.protocol import CheckpointReport, SpawnRequest
from queue_operator.domain.errors import InvalidArgument, StaleLease
from queue_operator.domain.job import Job
from queue_operator.queue.asks import WorkerAsks
from queue_operator.queue.clock import SystemClock
from queue_operator.queue.quotas import Quotas
from queue_operator.settings import QuotaSettings
from queue_operator.testing.driving import claim, running, submitted


class Asked:
    """Asks on a store, and the jobs that they told of."""

    def __init__(self, backend: Any) -> None:
        self.backend = backend
        self.told: list[Job] = []
        quotas = Quotas(backend, QuotaSettings(), SystemClock())
        self.asks = WorkerAsks(backend, quotas, self.told.extend, SystemClock())


@pytest.fixture
async def asked() -> AsyncIterator[Asked]:
    made = Asked(MemoryBackend())
    await made.asks.start()
    yield made
    await made.asks.stop()


def child(parent: Job, token: str, key: str, **fields: Any) -> SpawnRequest:
    job = Job(id="", type="child", **fields)
    return SpawnRequest(parent_id=parent.id, token=token, key=key, job=job)


async def test_the_queue_hears_of_new_children_only(asked: Asked) -> None:
    parent, token = await running(asked.backend)
    first = child(parent, token, "1")
    await asked.asks.spawn([first])
    answers = await asked.asks.spawn(
        [first, child(parent, token, "2", tags=frozenset({"eu"})), child(parent, "stale", "3")]
    )
    assert [(answer.duplicate, type(answer.error)) for answer in answers] == [
        (True, type(None)),
        (False, type(None)),
        (False, StaleLease),
    ]
    assert [(job.type, job.tags) for job in asked.told] == [
        ("child", frozenset()),
        ("child", frozenset({"eu"})),
    ]


async def test_asks_of_many_callers_are_answered_in_their_order(asked: Asked) -> None:
    parent, token = await running(asked.backend)
    other = await claim(asked.backend, await submitted(asked.backend))
    reports = [
        CheckpointReport(job_id=parent.id, token=token, number=n, data=b"x") for n in range(1, 40)
    ]
    stale = CheckpointReport(job_id=parent.id, token=other.token, number=1, data=b"x")
    answers = await asked.asks.checkpoint([*reports, stale])
    assert [answer.error is None for answer in answers] == [True] * 39 + [False]


class Core:
    """A store without any of this."""


async def test_a_store_that_keeps_none_refuses_each_by_name() -> None:
    asked = Asked(Core())
    await asked.asks.start()
    parent = Job(id="a", type="t")
    [answer] = await asked.asks.spawn([child(parent, "t", "1")])
    assert isinstance(answer.error, InvalidArgument)
    report = CheckpointReport(job_id="a", token="t", number=1, data=b"x")
    [kept] = await asked.asks.checkpoint([report])
    assert isinstance(kept.error, InvalidArgument)
    await asked.asks.stop()
