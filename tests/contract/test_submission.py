"""EnqueueJob and EnqueueJobs."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from tests.contract.driving import a_job, submitted
from tests.contract.store import Store

from queue_operator.backends.protocol import Backend
from queue_operator.domain.errors import DuplicateJob, JobNotFound
from queue_operator.domain.job import Job, ResourceRef
from queue_operator.domain.ordering import Priority
from queue_operator.domain.retry import Backoff, BackoffStrategy
from queue_operator.domain.states import JobState

KEPT = [
    "id",
    "type",
    "payload",
    "content_type",
    "namespace",
    "tags",
    "priority",
    "created_at",
    "max_attempts",
    "timeout_s",
    "backoff",
    "correlation_id",
    "resource",
]


async def test_a_job_keeps_every_field_it_was_submitted_with(backend: Backend) -> None:
    job = Job(
        id="ü-1",
        type="mail/send",
        payload=bytes(range(256)),
        content_type="text/plain",
        namespace="team-a",
        tags=frozenset({"pool=a", "Pool=A", "tag with spaces", "quote\"'{},\\"}),
        priority=Priority.HIGH,
        created_at=datetime(2020, 2, 29, 12, 0, 0, 123456, tzinfo=UTC),
        max_attempts=7,
        timeout_s=1.5,
        backoff=Backoff(BackoffStrategy.CUSTOM, 0.5, 30.0, 2.0, (1.0, 2.5)),
        correlation_id="c-1",
        resource=ResourceRef("cluster", "ü-1", "name", 3),
    )
    assert await backend.enqueue_job(job) == "ü-1"
    stored = await backend.get_job("ü-1", namespace="team-a")
    for name in KEPT:
        assert getattr(stored, name) == getattr(job, name), name
    assert (stored.state, stored.attempt, stored.retry_count) == (JobState.INITIAL_PENDING, 0, 0)
    assert (stored.assignee_id, stored.started_at, stored.finalized_at) == ("", None, None)


async def test_a_batch_gives_its_ids_in_order(backend: Backend) -> None:
    jobs = [a_job(payload=str(n).encode()) for n in range(1500)]
    assert await backend.enqueue_jobs(jobs) == [job.id for job in jobs]
    assert (await backend.get_job(jobs[1234].id)).payload == b"1234"
    assert await backend.enqueue_jobs([]) == []


async def test_a_batch_with_an_id_that_exists_stores_nothing(backend: Backend) -> None:
    first, second = await submitted(backend), await submitted(backend)
    new = [a_job() for _ in range(3)]
    with pytest.raises(DuplicateJob) as raised:
        await backend.enqueue_jobs([new[0], second, new[1], first, new[2]])
    assert raised.value.indexes == (1, 3)
    assert raised.value.job_ids == (second.id, first.id)
    for job in new:
        with pytest.raises(JobNotFound):
            await backend.get_job(job.id)
    assert (await backend.get_job_stats([])).total_jobs == 2


async def test_an_id_twice_in_a_batch_is_refused_with_its_index(backend: Backend) -> None:
    job = a_job()
    with pytest.raises(DuplicateJob) as raised:
        await backend.enqueue_jobs([job, a_job(), job])
    assert raised.value.indexes == (2,)
    assert (await backend.get_job_stats([])).total_jobs == 0


async def test_the_same_id_in_two_namespaces_is_two_jobs(backend: Backend) -> None:
    for namespace in ("a", "b"):
        await backend.enqueue_job(
            Job(id="same", type="t", namespace=namespace, payload=namespace.encode())
        )
    assert (await backend.get_job("same", namespace="b")).payload == b"b"
    with pytest.raises(JobNotFound):
        await backend.get_job("same")


async def test_a_single_duplicate_is_refused_and_the_first_stays(backend: Backend) -> None:
    job = await submitted(backend, payload=b"first")
    with pytest.raises(DuplicateJob):
        await backend.enqueue_job(Job(id=job.id, type="t", payload=b"second"))
    assert (await backend.get_job(job.id)).payload == b"first"


async def test_of_racing_submissions_of_one_id_exactly_one_wins(store: Store) -> None:
    replicas = [await store.open() for _ in range(3)]
    for round_ in range(5):
        tries = [
            replica.enqueue_job(Job(id=f"raced-{round_}", type="t"))
            for replica in replicas
            for _ in range(4)
        ]
        answers = await asyncio.gather(*tries, return_exceptions=True)
        assert answers.count(f"raced-{round_}") == 1
        assert sum(isinstance(answer, DuplicateJob) for answer in answers) == len(tries) - 1
    assert (await replicas[0].get_job_stats([])).total_jobs == 5


async def test_many_callers_at_once_each_get_their_job_stored(backend: Backend) -> None:
    jobs = [a_job() for _ in range(300)]
    duplicate = await submitted(backend)
    answers = await asyncio.gather(
        *(backend.enqueue_job(job) for job in [*jobs, duplicate]), return_exceptions=True
    )
    assert answers[:-1] == [job.id for job in jobs]
    assert isinstance(answers[-1], DuplicateJob)
    assert (await backend.get_job_stats([])).pending_jobs == 301


async def test_the_database_clock_stamps_a_job_without_a_time(backend: Backend) -> None:
    jobs = [a_job(), a_job()]
    await backend.enqueue_jobs(jobs)
    [first, second] = [await backend.get_job(job.id) for job in jobs]
    assert first.created_at == second.created_at
    assert first.created_at is not None
    assert first.eligible_at == first.created_at


async def test_a_delay_and_a_time_set_when_the_job_is_eligible(backend: Backend) -> None:
    at = datetime.now(UTC) + timedelta(hours=3)
    scheduled = await backend.get_job((await submitted(backend, scheduled_at=at)).id)
    assert scheduled.eligible_at == at
    delayed = await backend.get_job((await submitted(backend, delay_s=90.0)).id)
    assert delayed.eligible_at is not None
    assert delayed.created_at is not None
    assert delayed.eligible_at - delayed.created_at == timedelta(seconds=90)
