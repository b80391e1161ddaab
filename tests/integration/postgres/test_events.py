"""The log for the lake: every transition once, arrays aligned."""

from collections import defaultdict
from itertools import pairwise
from typing import Any

from tests.integration.postgres.conftest import Ask

from queue_operator.backends.postgres import PostgresBackend
from queue_operator.domain.job import Demand, Job
from queue_operator.domain.outcome import ErrorCategory, ErrorInfo, Outcome
from queue_operator.domain.states import TARGET, Event, JobState

ROWS = """
SELECT event, job_nos, from_states, to_states, attempts, wait_us, run_us, workers, submitted,
       failed
FROM job_event ORDER BY seq
"""
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
    steps: dict[int, list[tuple[str, str, str]]] = defaultdict(list)
    for row in await ask(ROWS):
        _check_aligned(*row)
        event, job_nos, from_states, to_states = row[:4]
        for place, number in enumerate(job_nos):
            before = from_states[place] if from_states else ""
            steps[number].append((event, before, to_states[place]))
    for number, job_id in numbers.items():
        job = await backend.get_job(job_id, namespace=namespace)
        told = steps[number]
        assert told[0] == ("SUBMIT", "", JobState.INITIAL_PENDING)
        assert len(told) == job.transition
        assert told[-1][2] == job.state
        for (_, _, after), (event, before, target) in pairwise(told):
            assert before == after
            assert TARGET[Event(event), JobState(before)] == target


def _check_aligned(
    event: str,
    job_nos: list[int],
    from_states: list[str],
    to_states: list[str],
    attempts: list[int],
    wait_us: list[int] | None,
    run_us: list[int] | None,
    workers: list[str] | None,
    submitted: list[dict[str, Any]] | None,
    failed: list[dict[str, Any] | None] | None,
) -> None:
    count = len(job_nos)
    assert count == len(set(job_nos)) > 0
    assert len(to_states) == len(attempts) == count
    assert len(from_states) == (0 if event == "SUBMIT" else count)
    for column in (wait_us, run_us, workers, submitted, failed):
        assert column is None or len(column) == count
    if event == Event.CLAIM:
        assert wait_us is not None
        assert min(wait_us) >= 0
        assert workers == ["pod-1"] * count
    if event == Event.COMPLETE:
        assert run_us is not None
        assert min(run_us) >= 0
    if event == Event.EXHAUST:
        assert failed == [{"category": "PERMANENT", "code": "CODE"}] * count


async def test_the_submission_carries_what_never_changes(
    backend: PostgresBackend, namespace: str, ask: Ask
) -> None:
    job = Job(
        id="s1", type="mail", namespace=namespace, tags=frozenset({"b", "a"}), correlation_id="c"
    )
    await backend.enqueue_job(job)
    [(submitted,)] = await ask("SELECT submitted FROM job_event ORDER BY seq DESC LIMIT 1")
    assert submitted == [
        {
            "id": "s1",
            "namespace": namespace,
            "type": "mail",
            "tags": ["a", "b"],
            "priority": "NORMAL",
            "correlation_id": "c",
        }
    ]


async def test_a_deletion_writes_an_event_and_removes_none(
    backend: PostgresBackend, namespace: str, ask: Ask
) -> None:
    await backend.enqueue_job(Job(id="d1", type="t", namespace=namespace))
    await backend.cancel_jobs([], ["d1"], namespace=namespace)
    before = await ask("SELECT count(*) FROM job_event")
    await backend.delete_jobs([], ["d1"], namespace=namespace)
    assert await ask("SELECT count(*) FROM job_event") == [(before[0][0] + 1,)]
    assert await ask("SELECT event, from_states FROM job_event ORDER BY seq DESC LIMIT 1") == [
        ("DELETE", [JobState.UNSCHEDULED])
    ]
