"""What the checker says of outcomes that were refused, and of those that were acknowledged."""

from datetime import UTC, datetime, timedelta

import pytest

from queue_operator.backends.memory import MemoryBackend
from queue_operator.domain.errors import QueueError
from queue_operator.domain.job import Job
from queue_operator.domain.outcome import ErrorInfo, Outcome
from queue_operator.domain.overdue import TIMED_OUT
from queue_operator.domain.states import Event
from queue_operator.testing.driving import running, settle
from queue_operator.testing.history import History, Kind, Log, Rule, check, read_store

TTL_S = 60.0
TIMEOUT_S = 100.0


class Told:
    """A store, a worker that says outcomes to it, and what the checker finds in the end."""

    def __init__(self) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)
        self.backend = MemoryBackend(clock=self._tick)
        self.log = Log("worker-1", clock=lambda: self._tick().timestamp())

    def _tick(self) -> datetime:
        self.now += timedelta(milliseconds=1)
        return self.now

    async def fail(self, job: Job, token: str | None, error: ErrorInfo | None = None) -> None:
        """As it is, answered as the store answers."""
        outcome = Outcome(job.id, Event.FAIL, token=token, error=error or ErrorInfo("boom"))
        answer = await settle(self.backend, outcome)
        self.answered(job, token or "", answer.error)

    def answered(self, job: Job, token: str, error: QueueError | None = None) -> None:
        kind = Kind.OUTCOME_REFUSED if error else Kind.OUTCOME_ACKNOWLEDGED
        self.log.write(kind, job.id, token, outcome="FAIL", error=error.code if error else "")

    def refused(self, job: Job, token: str) -> None:
        """Whatever the store says."""
        self.log.write(
            Kind.OUTCOME_REFUSED, job.id, token, outcome="FAIL", error="INVALID_TRANSITION"
        )

    async def sweep_after(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)
        await self.backend.expire_leases(lease_ttl_s=TTL_S)

    async def rules(self) -> list[Rule]:
        jobs = await read_store(self.backend)
        history = History(self.log.records, jobs, quiet=False, statement_s=0.0, transaction_s=0.0)
        return [violation.rule for violation in check(history)]


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.mark.parametrize("max_attempts", [None, 1])
async def test_a_failure_that_is_stored_may_not_be_refused(
    told: Told, max_attempts: int | None
) -> None:
    job, token = await running(told.backend, timeout_s=TIMEOUT_S, max_attempts=max_attempts)
    await told.fail(job, token)
    await told.fail(job, token)
    assert await told.rules() == []
    told.refused(job, token)
    assert await told.rules() == [Rule.OUTCOME_KEPT]


@pytest.mark.parametrize("max_attempts", [None, 1])
async def test_a_failure_may_be_refused_when_the_sweeper_ended_the_attempt_as_timed_out(
    told: Told, max_attempts: int | None
) -> None:
    job, token = await running(told.backend, timeout_s=TIMEOUT_S, max_attempts=max_attempts)
    await told.sweep_after(TIMEOUT_S + TTL_S + 1)
    await told.fail(job, token, TIMED_OUT)
    assert [one.kind for one in told.log.records] == [Kind.OUTCOME_REFUSED]
    assert await told.rules() == []
    told.answered(job, token)
    assert await told.rules() == [Rule.OUTCOME_KEPT]


async def test_a_failure_may_be_refused_when_the_lost_job_was_given_up(told: Told) -> None:
    job, token = await running(told.backend, max_attempts=1)
    # The first finds that nobody has swept for long, the second loses the job.
    for _ in range(3):
        await told.sweep_after(TTL_S + 1)
    await told.fail(job, token)
    assert [one.kind for one in told.log.records] == [Kind.OUTCOME_REFUSED]
    assert await told.rules() == []
    told.answered(job, token)
    assert await told.rules() == [Rule.OUTCOME_KEPT]


async def test_a_failure_may_not_be_refused_before_the_sweeper_ended_the_attempt(
    told: Told,
) -> None:
    job, token = await running(told.backend, timeout_s=TIMEOUT_S)
    told.refused(job, token)
    await told.sweep_after(TIMEOUT_S + TTL_S + 1)
    assert await told.rules() == [Rule.OUTCOME_KEPT]


@pytest.mark.parametrize("timeout_s", [None, TIMEOUT_S])
async def test_the_sweepers_words_alone_are_no_excuse(told: Told, timeout_s: float | None) -> None:
    """Its holder said them, at a time at which the sweeper could not."""
    job, token = await running(told.backend, timeout_s=timeout_s)
    outcome = Outcome(job.id, Event.FAIL, token=token, error=TIMED_OUT)
    assert (await settle(told.backend, outcome)).error is None
    told.refused(job, token)
    assert await told.rules() == [Rule.OUTCOME_KEPT]
