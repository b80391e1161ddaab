"""How long leases last, and how often the queue renews those that nobody else renews."""

from collections.abc import Mapping, Sequence
from datetime import timedelta

from tests.integration.queue.counting import TurningClock
from tests.unit.queue.counting import START, jobs
from tests.waiting import take_jobs

from queue_operator.backends.memory import MemoryBackend
from queue_operator.domain.job import Assignment, Demand, TypeDefaults
from queue_operator.domain.lease import Held, LeaseAnswer
from queue_operator.domain.states import JobState
from queue_operator.queue.service import QueueService
from queue_operator.testing.clauses import proves

THIRD_S = 5.0 / 3


class Noting(MemoryBackend):
    """Notes when it was asked to renew leases, for how many jobs and how long."""

    def __init__(self, clock: TurningClock) -> None:
        super().__init__(clock=lambda: START + timedelta(seconds=clock.now_s))
        self.renewals: list[tuple[float, int, float]] = []
        self.claimed_for_s: set[float] = set()
        self._clock_of_test = clock

    async def claim(
        self,
        demands: Sequence[Demand],
        *,
        lease_ttl_s: float,
        defaults: Mapping[str, TypeDefaults] | None = None,
    ) -> list[Assignment]:
        self.claimed_for_s.add(lease_ttl_s)
        return await super().claim(demands, lease_ttl_s=lease_ttl_s, defaults=defaults)

    async def extend_leases(self, held: Sequence[Held], *, lease_ttl_s: float) -> list[LeaseAnswer]:
        if held:
            self.renewals.append((self._clock_of_test.now_s, len(held), lease_ttl_s))
        return await super().extend_leases(held, lease_ttl_s=lease_ttl_s)


@proves("queue-api.Leases.rule.1")
async def test_leases_of_five_seconds_are_renewed_every_third_of_that_all_at_once() -> None:
    """With the settings that a queue has where nobody says otherwise."""
    clock = TurningClock()
    backend = Noting(clock)
    queue = QueueService(backend, clock=clock)
    await queue.start()
    async with queue.stream_jobs("w", [], 20, namespace="team") as stream:
        await queue.enqueue_jobs(jobs(20))
        taken = await take_jobs(stream, 20)
        await clock.pass_by(4 * 5.0 + 0.1)
        assert backend.claimed_for_s == {5.0}
        times = [at_s for at_s, _, _ in backend.renewals]
        assert [round(at_s / THIRD_S, 6) for at_s in times] == list(range(1, 13))
        assert {(count, ttl_s) for _, count, ttl_s in backend.renewals} == {(20, 5.0)}
        # Four TTLs have passed.
        states = [(await queue.get_job(job.id, namespace="team")).state for job in taken]
        assert set(states) == {JobState.RUNNING}
        # Nobody renews them any more: they last five seconds from the last time, and no longer.
        await queue.keeper.stop()
        renewed_s = times[-1]
        for at_s, lost in ((4.99, 0), (5.01, 20)):
            clock.now_s = renewed_s + at_s
            # What a gap in the sweeps would spare is not what is asked.
            await backend.expire_leases(lease_ttl_s=5.0)
            stats = await queue.get_job_stats([], namespace="team")
            assert stats.by_state.get(JobState.UNKNOWN_RETRY, 0) == lost
    await queue.close()
