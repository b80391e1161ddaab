"""Batches, retries and isolation of the coalescer, with the test as the store."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Protocol

import pytest

from queue_operator.domain.clock import Clock
from queue_operator.domain.errors import Unavailable
from queue_operator.queue.coalescer import Coalescer
from queue_operator.testing.clauses import proves


class Turnable(Clock, Protocol):
    """The clock of conftest."""

    async def skip(self) -> float: ...


class Gate:
    """Applies batches one by one, as the test lets them through."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.failures: list[Exception] = []
        self.bad: set[int] = set()
        self.arrived = asyncio.Event()
        self.open = asyncio.Event()
        self.open.set()

    async def apply(self, items: Sequence[int]) -> list[int]:
        self.batches.append(list(items))
        self.arrived.set()
        await self.open.wait()
        if self.failures:
            raise self.failures.pop(0)
        if self.bad & set(items):
            raise ValueError("a poisonous item")
        return [item * 10 for item in items]


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
async def coalescer(gate: Gate, clock: Turnable) -> AsyncIterator[Coalescer[int, int]]:
    made: Coalescer[int, int] = Coalescer(
        "test", gate.apply, lambda item, error: -item, max_batch=4, clock=clock, rng=lambda: 0.5
    )
    await made.start()
    yield made
    gate.open.set()
    await made.stop()


async def test_what_arrives_while_a_batch_runs_goes_together(
    coalescer: Coalescer[int, int], gate: Gate
) -> None:
    gate.open.clear()
    first = coalescer.offer([1])
    await gate.arrived.wait()
    second, third = coalescer.offer([2]), coalescer.offer([3, 4])
    gate.open.set()
    assert [await first, await second, await third] == [[10], [20], [30, 40]]
    assert gate.batches == [[1], [2, 3, 4]]


async def test_a_call_larger_than_a_batch_is_split_and_answered_whole(
    coalescer: Coalescer[int, int], gate: Gate
) -> None:
    small, large = coalescer.offer([1]), coalescer.offer(list(range(2, 12)))
    assert [await small, await large] == [[10], [item * 10 for item in range(2, 12)]]
    assert max(len(batch) for batch in gate.batches) == 4
    assert [item for batch in gate.batches for item in batch] == list(range(1, 12))


async def test_nothing_is_lost_while_the_store_is_away(
    coalescer: Coalescer[int, int], gate: Gate, clock: Turnable
) -> None:
    gate.failures = [Unavailable("gone"), Unavailable("still gone")]
    answer = coalescer.offer([1, 2])
    first = await clock.skip()
    second = await clock.skip()
    assert await answer == [10, 20]
    assert 0 < first < second
    assert gate.batches == [[1, 2]] * 3


async def test_one_bad_item_disturbs_nobody_else(
    coalescer: Coalescer[int, int], gate: Gate
) -> None:
    gate.bad = {3}
    assert await coalescer.submit([1, 2, 3, 4]) == [10, 20, -3, 40]


@proves("queue-api.WorkerPlane.rule.9")
async def test_callers_wait_when_too_much_is_pending(
    coalescer: Coalescer[int, int], gate: Gate
) -> None:
    gate.open.clear()
    backlog = coalescer.offer(list(range(1, 41)))
    late = asyncio.ensure_future(coalescer.submit([99]))
    await gate.arrived.wait()
    assert not late.done()
    gate.open.set()
    assert await late == [990]
    assert len(await backlog) == 40


async def test_stop_applies_what_is_pending(coalescer: Coalescer[int, int], gate: Gate) -> None:
    answers = [coalescer.offer([item]) for item in range(1, 10)]
    await coalescer.stop()
    assert [await answer for answer in answers] == [[item * 10] for item in range(1, 10)]
    with pytest.raises(Unavailable):
        await coalescer.submit([1])


async def test_stop_tells_callers_whose_items_the_store_does_not_take(
    coalescer: Coalescer[int, int], gate: Gate
) -> None:
    gate.open.clear()
    gate.failures = [Unavailable("gone")]
    answers = [coalescer.offer([1]), coalescer.offer([2])]
    await gate.arrived.wait()
    stopping = asyncio.ensure_future(coalescer.stop())
    answers.append(coalescer.offer([3]))
    gate.open.set()
    await stopping
    for answer in answers:
        with pytest.raises(Unavailable):
            await answer


async def test_a_caller_that_gave_up_does_not_stop_the_others(
    coalescer: Coalescer[int, int], gate: Gate
) -> None:
    gate.open.clear()
    impatient = asyncio.ensure_future(coalescer.submit([1]))
    await gate.arrived.wait()
    patient = asyncio.ensure_future(coalescer.submit([2]))
    impatient.cancel()
    await asyncio.wait([impatient])
    gate.open.set()
    assert await patient == [20]
    assert gate.batches == [[1], [2]]
