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


@proves(
    "queue-api.Slots.rule.1",
    "queue-api.Invariants.rule.2",
    "queue-api.Invariants.rule.7",
)
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
