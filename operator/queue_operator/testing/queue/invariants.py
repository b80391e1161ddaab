"""Histories that nobody chose, and what must hold in each."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from random import Random

import pytest

from queue_operator.domain.errors import QueueError
from queue_operator.domain.job import Job
from queue_operator.domain.states import JobState
from queue_operator.testing.clauses import proves
from queue_operator.testing.queue.desk import Consumer, Desk
from queue_operator.testing.table import SLOT_HOLDING

_CAPACITIES = (1, 2, 4)
_STEPS = 40
SEEDS = range(1, 25)
"""Whoever pays for each may run some of them on one store and others on another."""


class History:
    """Random calls on jobs that streams were given, one at a time or many at once."""

    def __init__(self, desk: Desk, seed: int) -> None:
        self.desk = desk
        self.rng = Random(seed)  # noqa: S311
        self.streams: dict[Consumer, int] = {}
        self.given: list[Job] = []

    async def step(self) -> None:
        calls = self.desk.calls
        job = self.rng.choice(self.given).id if self.given else "nobody"
        made: Callable[[], Awaitable[object]] = self.rng.choice(
            [
                lambda: self.desk.submit(self.rng.randint(1, 3)),
                lambda: calls.complete_job(job, b""),
                lambda: calls.fail_job(job, "x"),
                lambda: calls.stop_job(job, ""),
                lambda: calls.cancel_jobs([], [job]),
                lambda: calls.acknowledge_cancellation(job, self.rng.random() < 0.5),
                lambda: calls.mark_worker_unresponsive(self.rng.choice([*self.streams]).assignee),
                lambda: calls.reset_running_jobs(),
            ]
        )
        try:
            await made()
        except QueueError:
            # Most calls do not fit the state of a job drawn at random.
            return

    async def collect(self) -> None:
        for stream in self.streams:
            if stream.start().step.done():
                self.given += await stream.batch()

    async def check(self) -> None:
        """No stream holds more than it may, by what the store says."""
        held: Counter[str] = Counter()
        for job in await asyncio.gather(*map(self.desk.get, {job.id for job in self.given})):
            held[job.assignee_id] += job.state in SLOT_HOLDING
        for stream, capacity in self.streams.items():
            assert held[stream.assignee] <= capacity


@proves("queue-api.Slots.rule.1", "queue-api.Invariants.rule.2")
@pytest.mark.parametrize("seed", SEEDS)
async def test_slots_hold_through_any_history(desk: Desk, seed: int) -> None:
    history = History(desk, seed)
    for capacity in _CAPACITIES:
        history.streams[desk.stream(capacity)] = capacity
    await desk.submit(6)
    for _ in range(_STEPS):
        await asyncio.gather(*(history.step() for _ in range(history.rng.randint(1, 3))))
        await history.collect()
        await history.check()
    await _everything_ends(history)


async def _everything_ends(history: History) -> None:
    """Every slot comes back and every job is given out, to the last one: nothing was lost."""
    desk = history.desk

    async def finish() -> bool:
        await history.collect()
        await history.check()
        await desk.rig.tick()
        for job in {job.id: job for job in history.given}.values():
            state = await desk.state(job)
            if state is JobState.RUNNING:
                await desk.calls.complete_job(job.id, b"")
            elif state is JobState.CANCELLING:
                await desk.calls.acknowledge_cancellation(job.id, True)
        history.given.clear()
        stats = await desk.stats()
        return stats.total_jobs == stats.completed_jobs + stats.stopped_jobs

    await desk.until(finish)
    # All that each stream may hold at once comes again.
    new = {job.id for job in await desk.submit(sum(_CAPACITIES) + 1)}
    for stream, capacity in history.streams.items():
        taken: list[Job] = []
        while len(taken) < capacity:
            # Before them may come what was given out again, and ended by its id, unread.
            taken += [job for job in await stream.batch() if job.id in new]
        assert len(taken) == capacity
    await desk.nothing_more(*history.streams)


async def _submit(desk: Desk, *held: Job) -> None:
    await desk.submit(2, tags=_RED)


async def _fail(desk: Desk, *held: Job) -> None:
    await desk.calls.fail_job(held[0].id, "again")


async def _lose(desk: Desk, *held: Job) -> None:
    await desk.calls.mark_worker_unresponsive(held[0].assignee_id)


async def _reset(desk: Desk, *held: Job) -> None:
    await desk.calls.reset_running_jobs()


async def _end_a_parent(desk: Desk, *held: Job) -> None:
    await desk.calls.complete_job(held[0].id, b"")


_RED = frozenset({"red"})


@proves("queue-api.Invariants.rule.7")
@pytest.mark.parametrize("make", [_submit, _fail, _lose, _reset, _end_a_parent])
async def test_news_wakes_each_stream_once_and_one_is_given_a_job(
    desk: Desk, make: Callable[..., Awaitable[None]]
) -> None:
    # Whoever held them has left, and cannot be given them again.
    holder, held = await desk.holding(2, tags=_RED)
    await holder.close()
    await desk.submit(tags=_RED, depends_on=(held[0].id,))
    waiting = [await desk.waiting(1, _RED) for _ in range(3)]
    strangers = [await desk.waiting(1, tags) for tags in (["blue"], ["red", "blue"])]
    before = {one: desk.rig.looks(one.assignee) for one in (*waiting, *strangers)}
    await make(desk, *held)

    async def given_to_one() -> bool:
        return any(not one.waits for one in waiting)

    await desk.until(given_to_one)
    await desk.nothing_more(*strangers)
    looked = {one: desk.rig.looks(one.assignee) - count for one, count in before.items()}
    assert max(looked.values()) == 1, looked
    given = [job.id for one in waiting if not one.waits for job in await one.batch()]
    assert len(set(given)) == len(given) > 0
