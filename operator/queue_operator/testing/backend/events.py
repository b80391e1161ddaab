"""The log of events: what the lake reads, for stores that keep one."""

from itertools import pairwise
from typing import Any, Final

import pytest

from queue_operator.backends.protocol import EVENT_SCHEMA_VERSION, EventBatch, EventLog
from queue_operator.domain.errors import InvalidArgument, InvalidTransition
from queue_operator.domain.job import Demand, Job
from queue_operator.domain.ordering import Priority
from queue_operator.domain.outcome import ErrorCategory, ErrorInfo, Outcome
from queue_operator.domain.states import Event, JobState
from queue_operator.testing.driving import a_job, apply, happens, job_in, running, submitted
from queue_operator.testing.store import TTL_S, Contract, Store
from queue_operator.testing.table import SLOT_HOLDING, TARGET
from queue_operator.testing.wrong import LIMITS

_SUBMIT: Final = "SUBMIT"
_DELETE: Final = "DELETE"
_ROWS: Final = sorted(set(TARGET) - {(Event.RETRY_NOW, JobState.UNSCHEDULED)})


async def _events(backend: Contract, after: int = 0) -> list[EventBatch]:
    assert isinstance(backend, EventLog)
    batches = await backend.read_events(after=after)
    assert all(earlier.seq < later.seq for earlier, later in pairwise(batches))
    return batches


async def _seen(backend: Contract) -> int:
    return max((batch.seq for batch in await _events(backend)), default=0)


def _lives(batches: list[EventBatch]) -> dict[str, list[tuple[str, JobState | None]]]:
    """Event and state after it of each job by id, read from nothing but the log."""
    names: dict[int, str] = {}
    lives: dict[str, list[tuple[str, JobState | None]]] = {}
    for batch in batches:
        if batch.event == _SUBMIT:
            names |= dict(zip(batch.job_nos, batch.ids, strict=True))
        for number in batch.job_nos:
            life = lives.setdefault(names[number], [])
            assert batch.before == (life[-1][1] if life else None)
            life.append((batch.event, batch.after))
    return lives


async def test_the_log_tells_of_a_submission_what_never_changes(backend: Contract) -> None:
    jobs = [
        a_job(type="mail", tags=frozenset({"a", "b"}), priority=Priority.HIGH, correlation_id="c"),
        a_job(type="mail", tags=frozenset({"a", "b"}), priority=Priority.HIGH),
        a_job(type="report", namespace="other"),
    ]
    await backend.enqueue_jobs(jobs)
    told = {}
    for batch in await _events(backend):
        assert (batch.event, batch.before, batch.after) == (
            _SUBMIT,
            None,
            JobState.INITIAL_PENDING,
        )
        assert batch.schema_version == EVENT_SCHEMA_VERSION
        for n, job_id in enumerate(batch.ids):
            told[job_id] = (batch.correlations[n], batch.lanes[batch.lane_of[n]])
    assert told.keys() == {job.id for job in jobs}
    for job in jobs:
        correlation, lane = told[job.id]
        assert correlation == job.correlation_id
        assert (lane["namespace"], lane["type"], lane["priority"]) == (
            job.namespace,
            job.type,
            job.priority.value,
        )
        assert set(_listed(lane["tags"])) == job.tags


def _listed(value: object) -> list[str]:
    assert isinstance(value, list | tuple)
    return list(value)


@pytest.mark.parametrize(("event", "state"), _ROWS)
async def test_the_log_tells_each_row_of_the_state_table(
    backend: Contract, event: Event, state: JobState
) -> None:
    job, token = await job_in(backend, state)
    seen = await _seen(backend)
    assert await happens(backend, job, event, token)
    [batch] = await _events(backend, seen)
    after = TARGET[event, state]
    assert (batch.event, batch.before, batch.after) == (event, state, after)
    assert len(batch.job_nos) == 1
    stored = await backend.get_job(job.id)
    assert batch.at == stored.updated_at
    if event is Event.CLAIM:
        assert (len(batch.wait_us), batch.wait_us[0] >= 0) == (1, True)
        assert batch.workers == ("worker-2",)
    elif state in SLOT_HOLDING and after not in SLOT_HOLDING:
        [run_us] = batch.run_us
        assert run_us is not None
        assert run_us >= 0


async def test_the_log_alone_gives_the_state_of_every_job(backend: Contract, store: Store) -> None:
    jobs = [a_job(type="t", max_attempts=3) for _ in range(30)]
    await backend.enqueue_jobs(jobs)
    events = [Event.FAIL, Event.COMPLETE, Event.LOSE, Event.HAND_BACK, Event.STOP, Event.EXHAUST]
    for turn in range(4):
        demand = Demand(assignee_id="w", limit=30, types=frozenset({"t"}))
        claimed = await backend.claim([demand], lease_ttl_s=TTL_S)
        await backend.cancel_jobs(["cancel"], [one.job_id for one in claimed[turn::5]])
        outcomes = [
            Outcome(one.job_id, events[(n + turn) % 6], token=one.token, error=ErrorInfo("x"))
            for n, one in enumerate(claimed[: 20 + turn])
        ]
        await backend.settle(outcomes)
        await store.age(TTL_S + 1)
        await backend.expire_leases(lease_ttl_s=TTL_S)
    lives = _lives(await _events(backend))
    assert lives.keys() == {job.id for job in jobs}
    for job in jobs:
        stored = await backend.get_job(job.id)
        assert lives[job.id][-1][1] is stored.state
        assert len(lives[job.id]) == stored.transition


async def test_the_log_tells_why_an_attempt_failed(backend: Contract) -> None:
    job, token = await running(backend)
    error = ErrorInfo("no such user", ErrorCategory.PERMANENT, "NO_USER")
    await backend.settle([Outcome(job.id, Event.FAIL, token=token, error=error)])
    last = (await _events(backend))[-1]
    assert last.event == Event.EXHAUST
    [failed] = last.failed
    assert failed is not None
    assert (failed["category"], failed["code"]) == ("PERMANENT", "NO_USER")


async def test_the_log_tells_what_was_deleted(backend: Contract) -> None:
    ended, _ = await job_in(backend, JobState.COMPLETED)
    cancelled, _ = await job_in(backend, JobState.UNSCHEDULED)
    await backend.delete_jobs([], [ended.id, cancelled.id])
    lives = _lives(await _events(backend))
    assert lives[ended.id][-1] == (_DELETE, None)
    assert lives[cancelled.id][-1] == (_DELETE, None)


async def test_the_log_tells_what_was_cleaned_up(backend: Contract, store: Store) -> None:
    ended, _ = await job_in(backend, JobState.COMPLETED)
    await store.age(100.0)
    await backend.cleanup_expired_jobs(50.0)
    assert _lives(await _events(backend))[ended.id][-1] == (_DELETE, None)


async def test_the_log_does_not_tell_what_did_not_happen(backend: Contract) -> None:
    job, token = await running(backend)
    await backend.complete_job(job.id, b"", token=token)
    live = await submitted(backend)
    seen = await _seen(backend)
    assert (await apply(backend, job, Event.COMPLETE, token)).repeated
    with pytest.raises(InvalidTransition):
        await backend.complete_job(job.id, b"")
    with pytest.raises(InvalidTransition):
        await backend.delete_jobs([], [job.id, live.id])
    with pytest.raises(InvalidArgument):
        await backend.enqueue_jobs([a_job(), a_job(type="")])
    await backend.cancel_jobs([], ["missing"])
    assert await _events(backend, seen) == []


async def test_the_log_is_read_page_by_page(backend: Contract) -> None:
    for _ in range(5):
        await submitted(backend)
    assert isinstance(backend, EventLog)
    everything = await _events(backend)
    pages: list[EventBatch] = []
    while page := await backend.read_events(after=pages[-1].seq if pages else 0, limit=2):
        assert len(page) <= 2
        pages += page
    assert pages == everything


async def test_the_log_tells_of_children_in_the_same_breath(backend: Contract) -> None:
    parent, token = await running(backend)
    child: Job = await submitted(backend, depends_on=(parent.id,))
    await apply(backend, parent, Event.STOP, token)
    lives = _lives(await _events(backend))
    assert lives[parent.id][-1] == (Event.STOP, JobState.STOPPED)
    assert lives[child.id][-1] == (Event.SKIP, JobState.UNSCHEDULED)


@pytest.mark.parametrize(
    ("field", "asked"),
    [
        *(("after", {"after": wrong}) for wrong in (-1, 2**63, 1.5, True, "1", None)),
        *(("limit", {"limit": wrong}) for wrong in LIMITS),
    ],
)
async def test_a_log_is_read_from_a_place_and_to_a_limit(
    backend: Contract, field: str, asked: Any
) -> None:
    assert isinstance(backend, EventLog)
    await submitted(backend)
    with pytest.raises(InvalidArgument) as refused:
        await backend.read_events(**asked)
    assert refused.value.field == field
