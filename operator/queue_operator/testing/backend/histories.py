"""Random histories: whatever is called in whatever order, the books balance."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from queue_operator.domain.job import Demand, Job
from queue_operator.domain.lease import Held
from queue_operator.domain.outcome import ErrorInfo, Outcome
from queue_operator.domain.states import Event, JobState
from queue_operator.testing.clauses import proves
from queue_operator.testing.store import TTL_S, Contract, Store
from queue_operator.testing.table import SLOT_HOLDING, frees_slot

_SETTLED = sorted(set(Event) - {Event.CLAIM, Event.CANCEL})
# Each example takes a database round trip per step.
_EXAMPLES = settings.default.max_examples // 6 if settings.default else 15
_IDS = [f"job-{n}" for n in range(6)]

_steps = st.one_of(
    st.tuples(st.just("submit"), st.sampled_from(_IDS), st.sampled_from([None, 1, 2])),
    st.tuples(st.just("claim"), st.sampled_from(["w1", "w2"]), st.integers(1, 3)),
    st.tuples(st.just("settle"), st.sampled_from(_IDS), st.sampled_from(_SETTLED)),
    st.tuples(st.just("stale"), st.sampled_from(_IDS), st.sampled_from(_SETTLED)),
    st.tuples(st.just("cancel"), st.sampled_from(_IDS), st.booleans()),
    st.tuples(st.just("lose"), st.sampled_from(["w1", "w2"]), st.none()),
    st.tuples(st.just("sweep"), st.sampled_from([1.0, TTL_S + 1]), st.none()),
    st.tuples(st.just("extend"), st.sampled_from(_IDS), st.none()),
    st.tuples(st.just("delete"), st.sampled_from(_IDS), st.none()),
)


@dataclass
class _History:
    """Drives a backend and keeps the slots of each worker beside it."""

    backend: Contract
    store: Store
    tokens: dict[str, list[str]] = field(default_factory=dict)
    held: Counter[str] = field(default_factory=Counter)

    async def submit(self, job_id: str, max_attempts: int | None) -> None:
        await _tolerating(
            self.backend.enqueue_job(Job(id=job_id, type="t", max_attempts=max_attempts))
        )

    async def claim(self, worker: str, limit: int) -> None:
        demand = Demand(assignee_id=worker, limit=limit)
        claimed = await self.backend.claim([demand], lease_ttl_s=TTL_S)
        assert len(claimed) <= limit
        for assignment in claimed:
            self.tokens.setdefault(assignment.job_id, []).append(assignment.token)
            self.held[worker] += 1

    async def settle(self, job_id: str, event: Event) -> None:
        tokens = self.tokens.get(job_id, [])
        await self._settle(job_id, event, tokens[-1] if tokens else None)

    async def stale(self, job_id: str, event: Event) -> None:
        for token in self.tokens.get(job_id, [])[:-1]:
            await self._settle(job_id, event, token)

    async def _settle(self, job_id: str, event: Event, token: str | None) -> None:
        [before] = await self._states([job_id])
        outcome = Outcome(job_id, event, token=token, result=b"", error=ErrorInfo("x"))
        [answer] = await self.backend.settle([outcome])
        [after] = await self._states([job_id])
        if answer.error is not None or answer.repeated:
            assert after is before
            assert answer.freed_assignee_id is None
            return
        assert after is answer.state
        assert before is not None
        if answer.freed_assignee_id:
            self.held[answer.freed_assignee_id] -= 1
        elif before in SLOT_HOLDING and after not in SLOT_HOLDING:
            assert not frees_slot(event, before)
            job = await self.backend.get_job(job_id)
            self.held[job.assignee_id] -= 1

    async def cancel(self, job_id: str, force: bool) -> None:
        answer = await self.backend.cancel_jobs([], [job_id], force=force)
        assert len(answer.cancelled_job_ids) + len(answer.unknown_job_ids) == 1

    async def lose(self, worker: str, _: None) -> None:
        self.held -= Counter(await self.backend.mark_worker_unresponsive(worker))

    async def sweep(self, seconds: float, _: None) -> None:
        await self.store.age(seconds)
        for lost in await self.backend.expire_leases(lease_ttl_s=TTL_S):
            self.held[lost.assignee_id] -= 1

    async def extend(self, job_id: str, _: None) -> None:
        held = [Held(job_id, token) for token in self.tokens.get(job_id, [])]
        assert len(await self.backend.extend_leases(held, lease_ttl_s=TTL_S)) == len(held)

    async def delete(self, job_id: str, _: None) -> None:
        await _tolerating(self.backend.delete_jobs([], [job_id]))

    async def _states(self, ids: list[str]) -> list[JobState | None]:
        return [job.state if job else None for job in await self.jobs(ids)]

    async def jobs(self, ids: list[str]) -> list[Job | None]:
        found = await asyncio.gather(*map(self.backend.get_job, ids), return_exceptions=True)
        return [job if isinstance(job, Job) else None for job in found]

    async def check(self) -> None:
        assert await self.store.faults() == []
        jobs = [job for job in await self.jobs(_IDS) if job]
        stats = await self.backend.get_job_stats([])
        assert {s: n for s, n in stats.by_state.items() if n} == Counter(j.state for j in jobs)
        assert stats.total_retries == sum(job.retry_count for job in jobs)
        holders = Counter(job.assignee_id for job in jobs if job.state in SLOT_HOLDING)
        assert {worker: n for worker, n in self.held.items() if n} == holders


async def _tolerating(call: Awaitable[object]) -> None:
    await asyncio.gather(call, return_exceptions=True)


@proves("backend-api.TestingRequirements.must.6")
@settings(max_examples=_EXAMPLES, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(history=st.lists(_steps, min_size=5, max_size=40))
def test_the_books_balance_after_any_history(
    make_store: Callable[[], Awaitable[Store]], history: list[tuple[str, object, object]]
) -> None:
    async def run() -> None:
        store = await make_store()
        try:
            walk = _History(await store.open(), store)
            for name, first, second in history:
                await getattr(walk, name)(first, second)
            await walk.check()
        finally:
            await store.close()

    asyncio.run(run())
