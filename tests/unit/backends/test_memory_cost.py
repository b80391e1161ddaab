"""What a call of the store in memory costs, in steps of the interpreter: it follows what is asked
for, and not what has ended or how many sets of tags there are.
"""

import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from types import FrameType
from typing import Any, ClassVar

import pytest

from queue_operator.backends.memory import MemoryBackend
from queue_operator.backends.stored import lanes_of
from queue_operator.domain.job import Demand, Job
from queue_operator.domain.lease import Held

NOW = datetime(2026, 1, 1, tzinfo=UTC)
Call = Callable[[MemoryBackend, str], Awaitable[object]]


class Steps:
    def __init__(self) -> None:
        self.taken = 0

    def __call__(self, frame: FrameType, event: str, given: Any) -> "Steps":
        frame.f_trace_opcodes = True
        self.taken += event == "opcode"
        return self


@contextmanager
def counted() -> Iterator[Steps]:
    steps, before = Steps(), sys.gettrace()
    sys.settrace(steps)
    try:
        yield steps
    finally:
        sys.settrace(before)


async def ended(jobs: int) -> tuple[MemoryBackend, str]:
    """With so many jobs that have ended, two that wait, one that runs, and one that waits
    for that. Gives also the token of the running one.
    """
    now = [NOW]
    backend = MemoryBackend(clock=lambda: now[0])
    for n in range(0, jobs, 100):
        await backend.enqueue_jobs([Job(id=f"old-{n + m}", type="work") for m in range(100)])
        for given in await backend.claim([Demand(assignee_id="crew", limit=100)], lease_ttl_s=600):
            await backend.complete_job(given.job_id, b"", token=given.token)
    await backend.enqueue_job(Job(id="runs", type="work"))
    [given] = await backend.claim([Demand(assignee_id="me", limit=1)], lease_ttl_s=600)
    await backend.enqueue_job(Job(id="child", type="work", depends_on=("runs",)))
    await backend.enqueue_jobs([Job(id=f"waits-{n}", type="work") for n in range(2)])
    now[0] += timedelta(seconds=1)
    return backend, given.token


CALLS: dict[str, Call] = {
    "claim": lambda store, token: store.claim([Demand(assignee_id="me", limit=1)], lease_ttl_s=60),
    "complete": lambda store, token: store.complete_job("runs", b"", token=token),
    "extend": lambda store, token: store.extend_leases([Held("runs", token)], lease_ttl_s=60),
    "expire": lambda store, token: store.expire_leases(lease_ttl_s=60),
    "cancel by id": lambda store, token: store.cancel_jobs(frozenset(), job_ids=["waits-0"]),
    "lose": lambda store, token: store.mark_worker_unresponsive("me"),
    "read": lambda store, token: store.get_job("waits-1"),
    "submit": lambda store, token: store.enqueue_job(Job(id="new", type="work")),
}


async def steps_of(call: Call, jobs: int) -> int:
    backend, token = await ended(jobs)
    with counted() as steps:
        await call(backend, token)
    return steps.taken


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
async def test_jobs_that_have_ended_cost_nothing(call: Call) -> None:
    few, many = await steps_of(call, 100), await steps_of(call, 500)
    assert few > 100  # it was counted
    assert many < 1.1 * few


class Compared(str):
    """A text that counts how often it is compared with another."""

    times: ClassVar[int] = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        Compared.times += 1
        return super().__eq__(other)


def test_a_tag_set_of_its_own_is_compared_with_no_other() -> None:
    jobs = [
        Job(id=str(n), type=Compared("work"), tags=frozenset({f"tag-{n % 300}"}))
        for n in range(600)
    ]
    told = lanes_of(jobs)
    assert told["lane_of"] == (*range(300), *range(300))
    assert Compared.times < 1_000
