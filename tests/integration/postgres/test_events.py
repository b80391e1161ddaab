"""The log for the lake: every transition once, arrays aligned."""

from collections import defaultdict
from itertools import pairwise

import pytest
from tests.integration.postgres.conftest import Ask

from queue_operator.backends.postgres import PostgresBackend
from queue_operator.backends.protocol import EventBatch, EventLog
from queue_operator.domain.errors import Unavailable
from queue_operator.domain.job import Demand, Job
from queue_operator.domain.ordering import Priority
from queue_operator.domain.outcome import ErrorCategory, ErrorInfo, Outcome
from queue_operator.domain.states import TARGET, Event, JobState

NEXT: dict[JobState, tuple[Event, ...]] = {
    JobState.RUNNING: (Event.FAIL, Event.LOSE, Event.HAND_BACK, Event.COMPLETE, Event.EXHAUST),
}


async def _walk(backend: PostgresBackend, namespace: str) -> None:
    jobs = [Job(id=f"e{n}", type="mail", namespace=namespace) for n in range(60)]
    await backend.enqueue_jobs(jobs)
    for turn in range(3):
        demand = Demand(assignee_id="session", limit=60, namespace=namespace, worker_name="pod-1")
        claimed = await backend.claim([demand], lease_ttl_s=60)
        ids = [a.job_id for a in claimed[turn::4]]
        await backend.cancel_jobs([], ids, namespace=namespace)
        events = NEXT[JobState.RUNNING]
        outcomes = [
            Outcome(
                a.job_id,
                events[(n + turn) % len(events)],
                namespace=namespace,
                token=a.token,
                error=ErrorInfo("boom", ErrorCategory.PERMANENT, "CODE")
                if events[(n + turn) % len(events)] is Event.EXHAUST
                else None,
                worker_plane=True,
            )
            for n, a in enumerate(claimed)
        ]
        await backend.settle(outcomes)
    await backend.reset_running_jobs()


async def test_the_log_tells_every_transition_once_and_in_order(
    backend: PostgresBackend, namespace: str, ask: Ask
) -> None:
    await _walk(backend, namespace)
    numbers: dict[int, str] = dict(
        await ask(
            "SELECT job_no, job.id FROM job JOIN namespace ON namespace.id = namespace_id "
            "WHERE name = %s",
            namespace,
        )
    )
    steps: dict[int, list[tuple[str, JobState | None, JobState | None]]] = defaultdict(list)
    for batch in await everything(backend):
        _check_aligned(batch)
        for number in batch.job_nos:
            steps[number].append((batch.event, batch.before, batch.after))
    for number, job_id in numbers.items():
        job = await backend.get_job(job_id, namespace=namespace)
        told = steps[number]
        assert told[0] == ("SUBMIT", None, JobState.INITIAL_PENDING)
        assert len(told) == job.transition
        assert told[-1][2] == job.state
        for (_, _, after), (event, before, target) in pairwise(told):
            assert before is not None
            assert before == after
            assert TARGET[Event(event), before] == target


def _check_aligned(batch: EventBatch) -> None:
    count = len(batch.job_nos)
    assert count == len(set(batch.job_nos)) > 0
    submits = batch.event == "SUBMIT"
    assert len(batch.attempts) == (0 if submits else count)
    assert len(batch.ids) == len(batch.lane_of) == (count if submits else 0)
    assert set(batch.lane_of) == set(range(len(batch.lanes)))
    for column in (batch.wait_us, batch.run_us, batch.workers, batch.correlations, batch.failed):
        assert len(column) in (0, count)
    if batch.event == Event.CLAIM:
        assert min(batch.wait_us) >= 0
        assert batch.workers == ("pod-1",) * count
    else:
        assert (batch.wait_us, batch.workers) == ((), ())
    if batch.event == Event.COMPLETE:
        assert min(us for us in batch.run_us if us is not None) >= 0
    if batch.event == Event.EXHAUST:
        assert batch.failed == ({"category": "PERMANENT", "code": "CODE"},) * count


async def everything(backend: PostgresBackend) -> list[EventBatch]:
    return await backend.read_events(limit=1_000_000)


async def test_the_submission_carries_what_never_changes(
    backend: PostgresBackend, namespace: str
) -> None:
    plain = Job(id="s1", type="mail", namespace=namespace)
    tagged = Job(
        id="s2",
        type="mail",
        namespace=namespace,
        tags=frozenset({"b", "a"}),
        correlation_id="c",
        priority=Priority.HIGH,
    )
    await backend.enqueue_jobs([plain, tagged, Job(id="s3", type="mail", namespace=namespace)])
    batch = (await everything(backend))[-1]
    lanes = [batch.lanes[place] for place in batch.lane_of]
    lane = {"namespace": namespace, "type": "mail", "priority": "NORMAL", "tags": []}
    assert batch.ids == ("s1", "s2", "s3")
    assert batch.correlations == ("", "c", "")
    assert lanes == [lane, {**lane, "priority": "HIGH", "tags": ["a", "b"]}, lane]
    assert len(batch.lanes) == 2


async def test_without_correlations_none_are_stored(
    backend: PostgresBackend, namespace: str
) -> None:
    await backend.enqueue_job(Job(id="s1", type="mail", namespace=namespace))
    assert (await everything(backend))[-1].correlations == ()


async def test_jobs_that_come_from_different_states_are_told_apart(
    backend: PostgresBackend, namespace: str
) -> None:
    await backend.enqueue_jobs([Job(id=i, type="t", namespace=namespace) for i in "abc"])
    await backend.dequeue_jobs("w", (), 1, namespace=namespace)
    await backend.fail_job("a", "no", namespace=namespace)
    last = (await everything(backend))[-1].seq
    await backend.cancel_jobs([], ["a", "b", "c"], namespace=namespace)
    batches = await backend.read_events(after=last)
    assert {(b.event, b.before, b.after, len(b.job_nos)) for b in batches} == {
        ("CANCEL", JobState.FAILED_RETRY, JobState.STOPPED, 1),
        ("CANCEL", JobState.INITIAL_PENDING, JobState.UNSCHEDULED, 2),
    }


async def test_a_deletion_writes_an_event_and_removes_none(
    backend: PostgresBackend, namespace: str
) -> None:
    await backend.enqueue_job(Job(id="d1", type="t", namespace=namespace))
    await backend.cancel_jobs([], ["d1"], namespace=namespace)
    before = await everything(backend)
    await backend.delete_jobs([], ["d1"], namespace=namespace)
    *kept, deleted = await everything(backend)
    assert kept == before
    assert (deleted.event, deleted.before, deleted.after) == ("DELETE", JobState.UNSCHEDULED, None)
    assert deleted.job_nos == before[-1].job_nos


async def test_rows_are_given_page_by_page_in_order(
    backend: PostgresBackend, namespace: str
) -> None:
    log: EventLog = backend
    for n in range(5):
        await backend.enqueue_job(Job(id=f"p{n}", type="t", namespace=namespace))
    rows = await everything(backend)
    pages, after = [], 0
    while page := await log.read_events(after=after, limit=2):
        assert len(page) <= 2
        pages += page
        after = page[-1].seq
    assert pages == rows
    assert [row.seq for row in rows] == sorted({row.seq for row in rows})


async def test_rows_of_a_later_version_are_refused(
    backend: PostgresBackend, namespace: str, ask: Ask
) -> None:
    await backend.enqueue_job(Job(id="v1", type="t", namespace=namespace))
    seq = (await everything(backend))[-1].seq
    await ask("UPDATE job_event SET schema_version = 2 WHERE seq = %s", seq)
    with pytest.raises(Unavailable, match="upgrade"):
        await everything(backend)
    await ask("UPDATE job_event SET schema_version = 1 WHERE seq = %s", seq)
