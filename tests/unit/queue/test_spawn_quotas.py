"""What handlers submit is admitted as what callers submit."""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.queue.conftest import ManualClock
from tests.unit.queue.counting import Counting, jobs

from queue_operator.backends.memory.shelf import MemoryShelf
from queue_operator.backends.protocol import SpawnRequest
from queue_operator.domain.errors import InvalidArgument, QueueError, QuotaExceeded
from queue_operator.domain.job import Assignment, Demand, Job, Submitted
from queue_operator.domain.limits import DEFAULT_LIMITS
from queue_operator.domain.outcome import Outcome
from queue_operator.domain.states import Event
from queue_operator.queue.asks import WorkerAsks
from queue_operator.queue.quotas import FRESH_S, Quotas
from queue_operator.settings import Quota, QuotaSettings

Asking = Callable[..., Awaitable[WorkerAsks]]


@pytest.fixture
async def asking(backend: Counting, clock: ManualClock) -> AsyncIterator[Asking]:
    made: list[WorkerAsks] = []

    async def make(**quota: Any) -> WorkerAsks:
        settings = QuotaSettings(namespaces={"team": Quota(**quota)})
        quotas = Quotas(backend, settings, clock)
        made.append(WorkerAsks(backend, quotas, lambda told: None, clock))
        await made[-1].start()
        return made[-1]

    yield make
    for asks in made:
        await asks.stop()


async def running(backend: Counting, job: Job | None = None) -> Assignment:
    if job is None:
        [job] = jobs(1, tags=frozenset({"parent"}))
        await backend.enqueue_job(job)
    demand = Demand(assignee_id="w", limit=1, namespace="team", tags=job.tags)
    [assignment] = await backend.claim([demand], lease_ttl_s=60.0)
    assert assignment.job_id == job.id
    return assignment


def child(parent: Assignment, key: object, **fields: Any) -> SpawnRequest:
    return SpawnRequest(
        parent_id=parent.job_id,
        token=parent.token,
        namespace="team",
        key=str(key),
        job=Job(id="", type="child", namespace="team", **fields),
    )


def errors(answers: list[Submitted]) -> list[type[QueueError] | None]:
    return [None if answer.error is None else type(answer.error) for answer in answers]


async def pending(backend: Counting) -> int:
    return (await backend.usage_of(["team"]))["team"].pending


async def test_children_beyond_what_may_wait_are_refused(
    backend: Counting, asking: Any, clock: ManualClock
) -> None:
    asks = await asking(pending_jobs=3)
    parent = await running(backend)
    answers = await asks.spawn([child(parent, n) for n in range(40)])
    assert errors(answers) == [None] * 3 + [QuotaExceeded] * 37
    refusal = answers[3].error
    assert isinstance(refusal, QuotaExceeded)
    assert (refusal.limit, refusal.current, refusal.maximum) == ("pending_jobs", 3, 3)
    assert await pending(backend) == 3
    # The parent runs again: it gets the children it had, and more as there is room.
    clock.now_s += FRESH_S
    again = await asks.spawn([child(parent, n) for n in range(5)])
    assert errors(again) == [None, None, None, QuotaExceeded, QuotaExceeded]
    assert [answer.duplicate for answer in again[:3]] == [True] * 3
    assert [answer.job_id for answer in again[:3]] == [answer.job_id for answer in answers[:3]]
    await backend.cancel_jobs((), [answers[0].job_id], namespace="team")
    clock.now_s += FRESH_S
    later = await asks.spawn([child(parent, n) for n in range(5)])
    assert errors(later) == [None, None, None, None, QuotaExceeded]
    assert await pending(backend) == 3


async def test_a_child_with_a_long_id_that_the_settings_allow_is_known_again(
    clock: ManualClock,
) -> None:
    limits = replace(DEFAULT_LIMITS, id_characters=300)
    backend = Counting(MemoryShelf(), limits=limits)
    settings = QuotaSettings(namespaces={"team": Quota(pending_jobs=1)})
    asks = WorkerAsks(backend, Quotas(backend, settings, clock, limits), lambda told: None, clock)
    await asks.start()
    try:
        parent = await running(backend)
        given = child(parent, "one")
        request = replace(given, job=replace(given.job, id="x" * 290))
        answers = [(await asks.spawn([request]))[0] for _ in range(2)]
    finally:
        await asks.stop()
    assert errors(answers) == [None, None]
    assert [answer.duplicate for answer in answers] == [False, True]


async def test_children_pay_what_submissions_pay(
    backend: Counting, asking: Any, clock: ManualClock
) -> None:
    asks = await asking(submissions_per_s=2, submissions_burst=5)
    parent = await running(backend)
    answers = await asks.spawn([child(parent, n) for n in range(8)])
    assert errors(answers) == [None] * 5 + [QuotaExceeded] * 3
    # A repeat costs nothing.
    clock.now_s += 1.0
    again = await asks.spawn([child(parent, n) for n in range(8)])
    assert errors(again)[:5] == [None] * 5
    assert errors(again).count(QuotaExceeded) < 3
    large = await asking(payload_bytes_per_s=10)
    [small, large_one] = await large.spawn(
        [child(parent, "a", payload=b"x" * 10), child(parent, "b", payload=b"x" * 10)]
    )
    assert small.error is None
    assert isinstance(large_one.error, QuotaExceeded)


@pytest.mark.parametrize(("given", "most"), [({}, 100), ({"spawn_depth": 4}, 4)])
async def test_a_job_that_spawns_itself_comes_to_an_end(
    backend: Counting, asking: Any, given: dict[str, int], most: int
) -> None:
    asks = await asking(**given)
    depths = [0]
    current = await running(backend)
    while True:
        request = child(current, "next", tags=frozenset({"chain"}))
        [answer] = await asks.spawn([request])
        if answer.error is not None:
            break
        stored = await backend.get_job(answer.job_id, namespace="team")
        depths.append(stored.spawn_depth)
        done = Outcome(current.job_id, Event.COMPLETE, "team", current.token, result=b"")
        await backend.settle([done])
        current = await running(backend, stored)
    assert depths == list(range(most + 1))
    assert isinstance(answer.error, InvalidArgument)
    assert answer.error.field == "spawn_depth"
    assert f"{most} is the most" in str(answer.error)


async def test_a_chain_may_be_left_without_end(backend: Counting, asking: Any) -> None:
    asks = await asking(spawn_depth=None)
    parent = await running(backend)
    [answer] = await asks.spawn([replace(child(parent, 1), most_depth=0)])
    assert answer.error is None


async def test_where_there_is_no_quota_nothing_is_asked_of_the_store(
    backend: Counting, asking: Any
) -> None:
    asks = await asking()
    parent = await running(backend)
    assert errors(await asks.spawn([child(parent, n) for n in range(40)])) == [None] * 40
    assert (backend.looks, backend.takes, backend.key_looks) == (0, 0, 0)
