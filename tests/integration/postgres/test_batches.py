"""Batches as large as callers make them: all of it or the part that was promised is stored, and
the answer says which.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

import pytest
from tests.integration.postgres.conftest import Ask

from queue_operator.backends.postgres import PostgresBackend, submission
from queue_operator.domain.dependencies import DependencyMode
from queue_operator.domain.errors import (
    DuplicateJob,
    InvalidArgument,
    InvalidTransition,
    JobNotFound,
    KeyConflict,
    PayloadTooLarge,
    Unavailable,
)
from queue_operator.domain.job import Assignment, Demand, Job
from queue_operator.domain.outcome import Outcome
from queue_operator.domain.states import Event, JobState
from queue_operator.domain.validation import DEFAULT_LIMITS

# A statement has at most 65,535 parameters, so one for each id would not do.
BEYOND: Final = 70_000

Stored = Callable[[], Any]


@pytest.fixture
def stored(ask: Ask, namespace: str) -> Stored:
    """How many jobs of the namespace the tables hold: in all, and to be claimed."""

    async def count() -> tuple[int, int]:
        [counts] = await ask(
            "SELECT count(*), count(ready) FROM job JOIN namespace n ON n.id = namespace_id"
            " LEFT JOIN ready USING (job_no) WHERE n.name = %s",
            namespace,
        )
        return counts[0], counts[1]

    return count


def jobs_of(namespace: str, count: int, **fields: object) -> list[Job]:
    return [
        Job(**{"id": f"job-{n}", "type": "t", "namespace": namespace, **fields})  # type: ignore[arg-type]
        for n in range(count)
    ]


def keyed(jobs: Sequence[Job]) -> list[Job]:
    return [replace(job, idempotency_key=f"key of {job.id}") for job in jobs]


@pytest.mark.parametrize(
    ("count", "way", "atomic"),
    [
        (5_000, "plain", False),
        (10_000, "plain", True),
        (10_000, "keyed", False),
    ],
)
async def test_as_many_rows_are_stored_as_were_given(
    backend: PostgresBackend, namespace: str, stored: Stored, count: int, way: str, atomic: bool
) -> None:
    jobs = jobs_of(namespace, count)
    if way == "keyed":
        jobs = keyed(jobs)
    answers = await backend.submit(jobs, atomic=atomic)
    assert [answer.job_id for answer in answers] == [job.id for job in jobs]
    assert not any(answer.error or answer.duplicate for answer in answers)
    assert await stored() == (count, count)


async def test_a_hundred_thousand_jobs_are_stored_completed_and_cancelled_in_one_call_each(
    backend: PostgresBackend, namespace: str, stored: Stored
) -> None:
    ids = [f"job-{n}" for n in range(100_000)]
    assert await backend.enqueue_jobs(jobs_of(namespace, len(ids))) == ids
    assert await stored() == (len(ids), len(ids))
    demand = Demand(assignee_id="w", limit=BEYOND, namespace=namespace)
    claimed = await backend.claim([demand], lease_ttl_s=600.0)
    done = [one.job_id for one in claimed]
    # The oldest, each once.
    assert sorted(done) == sorted(ids[:BEYOND])
    settled = await backend.settle([_completion(one) for one in claimed])
    assert [answer.job_id for answer in settled] == done
    told = {(answer.state, answer.freed_assignee_id, answer.error) for answer in settled}
    assert told == {(JobState.COMPLETED, "w", None)}
    assert await stored() == (len(ids), len(ids) - BEYOND)
    wanted = [*ids[-BEYOND:], "nobody"]
    cancelled = await backend.cancel_jobs([], wanted, namespace=namespace)
    assert set(cancelled.cancelled_job_ids) == set(ids[BEYOND:])
    assert set(cancelled.unknown_job_ids) == {*ids[-BEYOND:BEYOND], "nobody"}
    stats = await backend.get_job_stats([], namespace=namespace)
    assert stats.by_state[JobState.COMPLETED] == BEYOND
    assert stats.by_state[JobState.UNSCHEDULED] == len(ids) - BEYOND
    assert stats.total_jobs == len(ids)


def _completion(one: Assignment) -> Outcome:
    return Outcome(
        one.job_id, Event.COMPLETE, namespace=one.namespace, token=one.token, result=b"done"
    )


async def test_a_job_may_wait_for_a_thousand_others_and_no_more(
    backend: PostgresBackend, namespace: str, stored: Stored, ask: Ask
) -> None:
    parents = jobs_of(namespace, DEFAULT_LIMITS.dependencies + 1)
    await backend.enqueue_jobs(parents)
    child = Job(id="child", type="t", namespace=namespace)
    most = replace(child, depends_on=tuple(job.id for job in parents[:-1]))
    too_many = replace(child, id="too many", depends_on=tuple(job.id for job in parents))
    with pytest.raises(InvalidArgument) as alone:
        await backend.enqueue_job(too_many)
    assert alone.value.field == "depends_on"
    answers = await backend.submit([too_many, most], atomic=False)
    assert [type(answer.error) for answer in answers] == [InvalidArgument, type(None)]
    assert (await stored())[0] == len(parents) + 1
    edges = "SELECT count(*) FROM dependency JOIN job ON job_no = child_no WHERE id = %s"
    assert await ask(edges, "child") == [(1000,)]
    # Any one of them decides.
    await backend.cancel_jobs([], [parents[500].id], namespace=namespace)
    skipped = await backend.get_job("child", namespace=namespace)
    assert skipped.state is JobState.UNSCHEDULED


async def test_a_batch_with_seventy_thousand_dependencies(
    backend: PostgresBackend, namespace: str, stored: Stored
) -> None:
    parents = jobs_of(namespace, 1000)
    names = tuple(job.id for job in parents)
    children = [
        Job(
            id=f"child-{n}",
            type="t",
            namespace=namespace,
            depends_on=names,
            dependency_mode=DependencyMode.AFTER_ANY,
        )
        for n in range(BEYOND // len(parents))
    ]
    await backend.enqueue_jobs([*children, *parents])
    assert await stored() == (1070, 1070)
    demand = Demand(assignee_id="w", limit=2000, namespace=namespace)
    claimed = await backend.claim([demand], lease_ttl_s=600.0)
    assert {one.job_id for one in claimed} == set(names)
    await backend.settle([_completion(claimed[0])])
    let_go = await backend.claim([demand], lease_ttl_s=600.0)
    assert {one.job_id for one in let_go} == {job.id for job in children}


# One bad item


def _taken(job: Job) -> Job:
    return replace(job, id="taken", idempotency_key="")


BAD: Final[dict[str, tuple[Callable[[Job], Job], str, type[InvalidArgument]]]] = {
    "type": (lambda job: replace(job, type=""), "type", InvalidArgument),
    "number as type": (lambda job: replace(job, type=7), "type", InvalidArgument),  # type: ignore[arg-type]
    "duration": (lambda job: replace(job, delay_s=-1.0), "delay_s", InvalidArgument),
    "endless": (lambda job: replace(job, timeout_s=float("inf")), "timeout_s", InvalidArgument),
    "text as payload": (lambda job: replace(job, payload="x"), "payload", InvalidArgument),  # type: ignore[arg-type]
    "large": (
        lambda job: replace(job, payload=bytes(DEFAULT_LIMITS.payload_bytes + 1)),
        "payload",
        PayloadTooLarge,
    ),
    "NUL": (lambda job: replace(job, tags=frozenset({"a\x00"})), "tags", InvalidArgument),
    "parent": (
        lambda job: replace(job, depends_on=("job-1", "nobody")),
        "depends_on[1]",
        InvalidArgument,
    ),
    "key": (
        lambda job: replace(job, idempotency_key="the key"),
        "idempotency_key",
        KeyConflict,
    ),
    "id": (_taken, "id", DuplicateJob),
}
PLACE: Final = 500


async def _prepare(backend: PostgresBackend, namespace: str) -> None:
    taken = Job(
        id="taken", type="t", namespace=namespace, payload=b"other", idempotency_key="the key"
    )
    await backend.enqueue_job(taken)


def _named(error: InvalidArgument) -> tuple[type[InvalidArgument], str, tuple[int, ...]]:
    """The kind of an error and where in the batch it is."""
    if isinstance(error, DuplicateJob):
        return DuplicateJob, "id", error.indexes
    place, _, field = error.field.partition(".")
    return type(error), field, (int(place.removeprefix("jobs[").removesuffix("]")),)


@pytest.mark.parametrize("way", ["plain", "keyed"])
async def test_one_bad_job_of_a_thousand_keeps_all_out_of_an_atomic_batch(
    backend: PostgresBackend, namespace: str, stored: Stored, way: str
) -> None:
    await _prepare(backend, namespace)
    good = jobs_of(namespace, 1000)
    if way == "keyed":
        good = keyed(good)
    for spoil, field, kind in BAD.values():
        jobs = [spoil(job) if n == PLACE else job for n, job in enumerate(good)]
        with pytest.raises(kind) as raised:
            await backend.enqueue_jobs(jobs)
        assert _named(raised.value) == (kind, field, (PLACE,))
        assert await stored() == (1, 1)
    # What was refused left nothing behind: neither ids nor keys are taken.
    assert await backend.enqueue_jobs(good) == [job.id for job in good]
    assert await stored() == (1001, 1001)


@pytest.mark.parametrize("bad", ["type", "duration", "parent", "key", "id"])
async def test_one_bad_job_of_a_thousand_is_named_and_a_repeat_adds_it_alone(
    backend: PostgresBackend, namespace: str, stored: Stored, bad: str
) -> None:
    await _prepare(backend, namespace)
    spoil, field, kind = BAD[bad]
    good = keyed(jobs_of(namespace, 1000))
    jobs = [spoil(job) if n == PLACE else job for n, job in enumerate(good)]
    answers = await backend.submit(jobs, atomic=False)
    assert [answer.job_id for answer in answers] == [job.id for job in jobs]
    errors = {n: answer.error for n, answer in enumerate(answers) if answer.error}
    assert list(errors) == [PLACE]
    error = errors[PLACE]
    assert isinstance(error, InvalidArgument)
    assert _named(error) == (kind, field, (PLACE,))
    assert (await stored())[0] == 1 + len(answers) - len(errors)
    again = await backend.submit(good, atomic=False)
    assert [answer.job_id for answer in again] == [job.id for job in good]
    assert [n for n, answer in enumerate(again) if not answer.duplicate] == [PLACE]
    assert (await stored())[0] == 1001


async def test_many_bad_jobs_of_a_thousand_are_each_told_their_own_reason(
    backend: PostgresBackend, namespace: str, stored: Stored
) -> None:
    await _prepare(backend, namespace)
    kinds = list(BAD.values())
    # All but the one whose id may be taken once in a batch.
    kinds.remove(BAD["id"])
    good = keyed(jobs_of(namespace, 1000))
    spoiled = {n: kinds[n // 7 % len(kinds)] for n in range(3, 1000, 7)}
    jobs = [spoiled[n][0](job) if n in spoiled else job for n, job in enumerate(good)]
    answers = await backend.submit(jobs, atomic=False)
    told = {
        n: _named(a.error) for n, a in enumerate(answers) if isinstance(a.error, InvalidArgument)
    }
    assert told == {n: (kind, field, (n,)) for n, (_, field, kind) in spoiled.items()}
    assert (await stored())[0] == 1 + 1000 - len(spoiled)


async def test_who_gives_up_before_its_turn_is_not_stored(
    backend: PostgresBackend, namespace: str
) -> None:
    """While the store is away those would be what is stored first when it is back."""
    jobs = [Job(id=name, type="mail", namespace=namespace) for name in ("first", "gone", "stays")]
    first = asyncio.create_task(backend.enqueue_job(jobs[0]))
    for _ in range(3):
        await asyncio.sleep(0)  # its turn has come
    gone, stays = (asyncio.create_task(backend.enqueue_job(job)) for job in jobs[1:])
    await asyncio.sleep(0)
    gone.cancel()
    assert (await first, await stays) == ("first", "stays")
    with pytest.raises(JobNotFound):
        await backend.get_job("gone", namespace=namespace)


async def test_so_many_submissions_wait_and_no_more(
    backend: PostgresBackend, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submission, "_MOST_WAITING", 3)
    jobs = [Job(id=str(n), type="mail", namespace=namespace) for n in range(5)]
    answers = await asyncio.gather(*map(backend.enqueue_job, jobs), return_exceptions=True)
    assert answers[:3] == ["0", "1", "2"]
    assert [type(answer) for answer in answers[3:]] == [Unavailable] * 2
    assert await backend.enqueue_job(jobs[3]) == "3"


async def test_outcomes_told_twice_take_two_transactions_not_one_each(
    backend: PostgresBackend, namespace: str, ask: Ask
) -> None:
    jobs = jobs_of(namespace, 500)
    await backend.enqueue_jobs(jobs)
    twice = [Outcome(job.id, Event.CANCEL, namespace=namespace) for job in jobs for _ in range(2)]
    [(before,)] = await ask("SELECT pg_current_xact_id()::text::bigint")
    answers = await backend.settle(twice)
    [(after,)] = await ask("SELECT pg_current_xact_id()::text::bigint")
    assert all(isinstance(one.error, InvalidTransition) for one in answers[1::2])
    assert all(one.error is None for one in answers[::2])
    assert after - before < 50
