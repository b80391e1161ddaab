"""The history of a job: put together from few rows, and yet all of it."""

import random
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from itertools import pairwise

import pytest
from tests.integration.postgres.conftest import Ask

from queue_operator.backends.postgres import PostgresBackend
from queue_operator.backends.protocol import Attempt, JobHistory, TransitionRecord
from queue_operator.domain.errors import JobNotFound
from queue_operator.domain.job import Demand, Job
from queue_operator.domain.outcome import ErrorCategory, ErrorInfo, Outcome
from queue_operator.domain.states import TARGET, Event, JobState

S = JobState
PERMANENT = ErrorInfo("boom", ErrorCategory.PERMANENT, "E1")
SETTLED = sorted(set(Event) - {Event.CLAIM})
Step = tuple[str, JobState | None, JobState]


def steps(history: JobHistory) -> list[Step]:
    return [(record.event, record.before, record.after) for record in history.transitions]


async def claimed(backend: PostgresBackend, namespace: str, job_id: str = "j") -> str:
    """Submits a job where it is missing, claims it and gives its token."""
    try:
        await backend.get_job(job_id, namespace=namespace)
    except JobNotFound:
        await backend.enqueue_job(Job(id=job_id, type="t", namespace=namespace, max_attempts=9))
    demand = Demand(
        assignee_id="session", limit=1, namespace=namespace, worker_name="pod-1", host="node-1"
    )
    [assignment] = await backend.claim([demand], lease_ttl_s=60)
    return assignment.token


async def settle(
    backend: PostgresBackend,
    namespace: str,
    event: Event,
    token: str | None = None,
    error: ErrorInfo | None = None,
) -> None:
    outcome = Outcome("j", event, namespace=namespace, token=token, error=error)
    [answer] = await backend.settle([outcome])
    assert answer.error is None


async def test_a_job_that_succeeds_at_once_has_a_history_without_rows(
    backend: PostgresBackend, namespace: str, ask: Ask
) -> None:
    rows = "SELECT (SELECT count(*) FROM attempt) + (SELECT count(*) FROM transition)"
    before = await ask(rows)
    token = await claimed(backend, namespace)
    await settle(backend, namespace, Event.COMPLETE, token)
    assert await ask(rows) == before
    job = await backend.get_job("j", namespace=namespace)
    history = await backend.get_history("j", namespace=namespace)
    assert steps(history) == [
        ("SUBMIT", None, S.INITIAL_PENDING),
        ("CLAIM", S.INITIAL_PENDING, S.RUNNING),
        ("COMPLETE", S.RUNNING, S.COMPLETED),
    ]
    times = [record.at for record in history.transitions]
    assert times == [job.created_at, job.assigned_at, job.finalized_at]
    assert history.attempts == (
        Attempt(
            version=1,
            number=1,
            token=token,
            assignee_id="session",
            worker_name="pod-1",
            host="node-1",
            assigned_at=times[1],
            ended_at=times[2],
            event="COMPLETE",
            state=S.COMPLETED,
            eligible_at=job.eligible_at,
        ),
    )


async def test_a_running_attempt_has_no_end(backend: PostgresBackend, namespace: str) -> None:
    await claimed(backend, namespace)
    [running] = (await backend.get_history("j", namespace=namespace)).attempts
    await backend.cancel_jobs([], ["j"], namespace=namespace)
    history = await backend.get_history("j", namespace=namespace)
    assert (running.ended_at, running.event, running.state, running.error) == (None,) * 4
    assert history.attempts == (running,)
    assert steps(history)[-1] == ("CANCEL", S.RUNNING, S.CANCELLING)


async def test_a_late_outcome_leaves_the_loss_in_the_history(
    backend: PostgresBackend, namespace: str
) -> None:
    token = await claimed(backend, namespace)
    await backend.mark_worker_unresponsive("session")
    [lost] = (await backend.get_history("j", namespace=namespace)).attempts
    await settle(backend, namespace, Event.FAIL, token, ErrorInfo("late", code="E2"))
    again = await claimed(backend, namespace)
    await settle(backend, namespace, Event.MARK_UNKNOWN_STOPPED, again)
    await settle(backend, namespace, Event.COMPLETE, again)
    history = await backend.get_history("j", namespace=namespace)
    assert steps(history) == [
        ("SUBMIT", None, S.INITIAL_PENDING),
        ("CLAIM", S.INITIAL_PENDING, S.RUNNING),
        ("LOSE", S.RUNNING, S.UNKNOWN_RETRY),
        ("FAIL", S.UNKNOWN_RETRY, S.FAILED_RETRY),
        ("CLAIM", S.FAILED_RETRY, S.RUNNING),
        ("MARK_UNKNOWN_STOPPED", S.RUNNING, S.UNKNOWN_STOPPED),
        ("COMPLETE", S.UNKNOWN_STOPPED, S.COMPLETED),
    ]
    failed, completed = history.attempts
    assert (lost.event, lost.state, lost.error) == ("LOSE", S.UNKNOWN_RETRY, None)
    assert (failed.event, failed.state) == ("FAIL", S.FAILED_RETRY)
    assert failed.error == ErrorInfo("late", code="E2")
    assert (completed.event, completed.state) == ("COMPLETE", S.COMPLETED)


async def test_reasons_are_told_where_there_is_more_than_the_event(
    backend: PostgresBackend, namespace: str
) -> None:
    token = await claimed(backend, namespace)
    await settle(backend, namespace, Event.EXHAUST, token, PERMANENT)
    await settle(backend, namespace, Event.RETRY_NOW)
    await backend.cancel_jobs([], ["j"], namespace=namespace, reason="not needed")
    history = await backend.get_history("j", namespace=namespace)
    assert [(record.event, record.reason) for record in history.transitions] == [
        ("SUBMIT", ""),
        ("CLAIM", ""),
        ("EXHAUST", "PERMANENT_FAILURE"),
        ("RETRY_NOW", ""),
        ("CANCEL", "not needed"),
    ]


@pytest.mark.parametrize("running", [False, True])
async def test_a_cancel_without_a_reason_has_none(
    backend: PostgresBackend, namespace: str, running: bool
) -> None:
    await backend.enqueue_job(Job(id="j", type="t", namespace=namespace))
    if running:
        await claimed(backend, namespace)
    await backend.cancel_jobs([], ["j"], namespace=namespace)
    history = await backend.get_history("j", namespace=namespace)
    assert (history.transitions[-1].event, history.transitions[-1].reason) == ("CANCEL", "")


async def test_a_retry_that_resets_the_attempts_counts_from_one_again(
    backend: PostgresBackend, namespace: str
) -> None:
    for _ in range(2):
        token = await claimed(backend, namespace)
        await settle(backend, namespace, Event.EXHAUST, token, PERMANENT)
        retry = Outcome("j", Event.RETRY_NOW, namespace=namespace, reset_attempts=True)
        await backend.settle([retry])
    attempts = (await backend.get_history("j", namespace=namespace)).attempts
    assert [(attempt.version, attempt.number) for attempt in attempts] == [(1, 1), (2, 1)]


async def test_a_time_of_submission_in_the_future_does_not_turn_the_order_round(
    backend: PostgresBackend, namespace: str
) -> None:
    created_at = datetime.fromisoformat("2999-01-01T00:00:00+00:00")
    await backend.enqueue_job(Job(id="j", type="t", namespace=namespace, created_at=created_at))
    await claimed(backend, namespace)
    first, second = (await backend.get_history("j", namespace=namespace)).transitions
    assert (first.event, first.at, second.event) == ("SUBMIT", created_at, "CLAIM")


async def test_no_history_without_a_job(backend: PostgresBackend, namespace: str) -> None:
    with pytest.raises(JobNotFound):
        await backend.get_history("j", namespace=namespace)
    await backend.enqueue_job(Job(id="j", type="t", namespace=namespace))
    with pytest.raises(JobNotFound):
        await backend.get_history("other", namespace=namespace)
    with pytest.raises(JobNotFound):
        await backend.get_history("j", namespace="default")


class Walk:
    """Random calls on some jobs, and what the jobs' records said after each."""

    def __init__(self, backend: PostgresBackend, namespace: str, seed: int) -> None:
        self.backend, self.namespace = backend, namespace
        self.random = random.Random(seed)  # noqa: S311
        self.ids = [f"job-{n}" for n in range(30)]
        self.tokens: dict[str, list[str]] = defaultdict(list)
        self.seen: dict[str, dict[int, JobState]] = defaultdict(dict)

    async def go(self, rounds: int) -> None:
        jobs = [Job(id=i, type="t", namespace=self.namespace, max_attempts=50) for i in self.ids]
        await self.backend.enqueue_jobs(jobs)
        await self.look()
        acts = [self.claim, self.claim, self.settle, self.settle, self.settle, self.cancel]
        for _ in range(rounds):
            await self.random.choice(acts)()
            await self.look()

    async def look(self) -> None:
        for job_id in self.ids:
            job = await self.backend.get_job(job_id, namespace=self.namespace)
            self.seen[job_id][job.transition] = job.state

    async def claim(self) -> None:
        demand = Demand(assignee_id="w", limit=10, namespace=self.namespace)
        for assignment in await self.backend.claim([demand], lease_ttl_s=60):
            self.tokens[assignment.job_id].append(assignment.token)

    async def settle(self) -> None:
        outcomes = [
            Outcome(
                job_id,
                self.random.choice(self.likely(job_id)),
                namespace=self.namespace,
                token=self.random.choice([*self.tokens[job_id][-2:], None]),
                error=self.random.choice([None, PERMANENT, ErrorInfo("x")]),
                worker_plane=self.random.random() < 0.5,
                reset_attempts=self.random.random() < 0.5,
            )
            for job_id in self.random.sample(self.ids, 12)
        ]
        await self.backend.settle(outcomes)

    def likely(self, job_id: str) -> list[Event]:
        """What the table allows, or now and then anything."""
        state = self.seen[job_id][max(self.seen[job_id])]
        allowed = [event for event in SETTLED if (event, state) in TARGET]
        return allowed if allowed and self.random.random() < 0.8 else SETTLED

    async def cancel(self) -> None:
        ids = self.random.sample(self.ids, 2)
        await self.backend.cancel_jobs([], ids, namespace=self.namespace)


async def logged(backend: PostgresBackend, ask: Ask, namespace: str) -> dict[str, list[Step]]:
    """What the event log tells of each job, in its order."""
    numbers: dict[int, str] = dict(
        await ask(
            "SELECT job_no, job.id FROM job JOIN namespace ON namespace.id = namespace_id"
            " WHERE name = %s",
            namespace,
        )
    )
    told: dict[str, list[Step]] = defaultdict(list)
    for batch in await backend.read_events(limit=1_000_000):
        for number in batch.job_nos:
            if number in numbers and batch.after is not None:
                told[numbers[number]].append((batch.event, batch.before, batch.after))
    return told


def check_chain(transitions: Sequence[TransitionRecord], state: JobState) -> None:
    for earlier, later in pairwise(transitions):
        assert later.before == earlier.after
        assert later.at >= earlier.at
        assert TARGET[Event(later.event), earlier.after] == later.after
    assert transitions[-1].after == state


def check_attempts(history: JobHistory, job: Job, tokens: Sequence[str]) -> None:
    assert [attempt.version for attempt in history.attempts] == [*range(1, job.lease_version + 1)]
    assert [attempt.token for attempt in history.attempts] == tokens
    claims = [record.at for record in history.transitions if record.event == "CLAIM"]
    assert [attempt.assigned_at for attempt in history.attempts] == claims
    ends = {(record.event, record.after, record.at) for record in history.transitions}
    running = job.state in (S.RUNNING, S.CANCELLING)
    ended = history.attempts[:-1] if running else history.attempts
    assert {(attempt.event, attempt.state, attempt.ended_at) for attempt in ended} <= ends


@pytest.mark.parametrize("seed", range(8))
async def test_any_history_is_a_chain_that_agrees_with_the_log_and_with_what_was_seen(
    backend: PostgresBackend, namespace: str, ask: Ask, seed: int
) -> None:
    walk = Walk(backend, namespace, seed)
    await walk.go(rounds=40)
    log = await logged(backend, ask, namespace)
    kinds = set()
    for job_id in walk.ids:
        job = await backend.get_job(job_id, namespace=namespace)
        history = await backend.get_history(job_id, namespace=namespace)
        assert steps(history) == log[job_id]
        assert len(history.transitions) == job.transition
        check_chain(history.transitions, job.state)
        check_attempts(history, job, walk.tokens[job_id])
        for number, state in walk.seen[job_id].items():
            assert history.transitions[number - 1].after == state
        kinds |= set(steps(history))
    assert len(kinds) > len(TARGET) // 2
