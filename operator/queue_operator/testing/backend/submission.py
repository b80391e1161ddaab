"""EnqueueJob and EnqueueJobs."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest

from queue_operator.domain.dependencies import DependencyMode
from queue_operator.domain.errors import DuplicateJob, InvalidArgument, JobNotFound
from queue_operator.domain.job import Job, ResourceRef
from queue_operator.domain.ordering import Priority
from queue_operator.domain.retry import Backoff, BackoffStrategy
from queue_operator.domain.states import JobState
from queue_operator.testing.breaking import (
    in_a_cancelled_task,
    needs_the_store,
    shape,
    whole_or_not_at_all,
)
from queue_operator.testing.clauses import proves
from queue_operator.testing.driving import a_job, submitted
from queue_operator.testing.store import Contract, Store

_GIVEN: Final = (
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
    "idempotency_key",
    "depends_on",
    "dependency_mode",
    "resource",
    "callback_url",
    "traceparent",
    "tracestate",
)


async def _missing(backend: Contract, *jobs: Job) -> bool:
    for job in jobs:
        with pytest.raises(JobNotFound):
            await backend.get_job(job.id, namespace=job.namespace)
    return True


async def _stored(backend: Contract, jobs: list[Job]) -> list[object]:
    found: list[object] = []
    for job in jobs:
        try:
            found.append(await shape(backend, job))
        except JobNotFound:
            found.append(None)
    return found


# EnqueueJob


@proves(
    "backend-api.EnqueueJob.pre.1",
    "backend-api.EnqueueJob.error.3",
    "backend-api.EnqueueJob.must.3",
)
async def test_enqueue_job_cancelled(backend: Contract) -> None:
    await in_a_cancelled_task(lambda: backend.enqueue_job(a_job()))

    async def bring() -> Job:
        return a_job()

    await whole_or_not_at_all(bring, backend.enqueue_job, lambda job: _stored(backend, [job]))


@proves("backend-api.EnqueueJob.pre.2")
@pytest.mark.parametrize("thing", [None, "job", {"id": "a", "type": "t"}])
async def test_enqueue_job_of_what_is_no_job(backend: Contract, thing: Any) -> None:
    with pytest.raises(InvalidArgument) as raised:
        await backend.enqueue_job(thing)
    assert raised.value.field == "job"
    assert (await backend.get_job_stats([])).total_jobs == 0


@proves("backend-api.EnqueueJob.pre.3")
async def test_enqueue_job_without_an_id(backend: Contract) -> None:
    with pytest.raises(InvalidArgument) as raised:
        await backend.enqueue_job(a_job(id=""))
    assert raised.value.field == "id"


@proves("backend-api.EnqueueJob.pre.4")
@pytest.mark.parametrize("state", sorted(set(JobState) - {JobState.INITIAL_PENDING}))
async def test_enqueue_job_in_another_state(backend: Contract, state: JobState) -> None:
    job = a_job(state=state)
    with pytest.raises(InvalidArgument) as raised:
        await backend.enqueue_job(job)
    assert raised.value.field == "state"
    assert await _missing(backend, job)


@proves(
    "backend-api.EnqueueJob.pre.5",
    "backend-api.EnqueueJob.error.1",
    "backend-api.EnqueueJob.must.4",
)
async def test_enqueue_job_with_an_id_that_exists(backend: Contract) -> None:
    job = await submitted(backend, payload=b"first")
    before = await backend.get_job(job.id)
    with pytest.raises(DuplicateJob) as raised:
        await backend.enqueue_job(a_job(id=job.id, payload=b"second"))
    assert (raised.value.field, raised.value.job_ids) == ("id", (job.id,))
    assert await backend.get_job(job.id) == before


@proves(
    "backend-api.EnqueueJob.post.1",
    "backend-api.EnqueueJob.post.2",
    "backend-api.EnqueueJob.post.3",
    "backend-api.EnqueueJob.must.1",
    "backend-api.EnqueueJob.must.2",
)
async def test_enqueue_job_keeps_every_field(backend: Contract) -> None:
    parent = await submitted(backend, namespace="team-a")
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
        idempotency_key="key 1",
        depends_on=(parent.id,),
        dependency_mode=DependencyMode.CHAIN,
        resource=ResourceRef("cluster", "ü-1", "name", 3),
        callback_url="https://example.com:8443/done?job=%C3%BC",
        traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        tracestate="vendor=a,other=b",
    )
    assert await backend.enqueue_job(job) == "ü-1"
    stored = await backend.get_job("ü-1", namespace="team-a")
    for name in _GIVEN:
        assert getattr(stored, name) == getattr(job, name), name
    assert (stored.state, stored.attempt, stored.retry_count) == (JobState.INITIAL_PENDING, 0, 0)
    assert (stored.assignee_id, stored.started_at, stored.finalized_at) == ("", None, None)


@proves(
    "backend-api.EnqueueJob.post.4",
    "backend-api.EnqueueJob.effect.1",
    "backend-api.EnqueueJob.effect.2",
    "backend-api.EnqueueJob.effect.3",
    "backend-api.EnqueueJob.expect.2",
)
async def test_enqueue_job_makes_it_visible_at_once(backend: Contract) -> None:
    job = await submitted(backend, tags=frozenset({"a", "b"}))
    assert (await backend.get_job(job.id)).tags == {"a", "b"}
    for tags, count in (["a", "b"], 1), (["a"], 1), ([], 1), (["a", "c"], 0):
        assert (await backend.get_job_stats(tags)).pending_jobs == count
    assert await backend.dequeue_jobs("w", ["a", "c"], 5) == []
    assert [found.id for found in await backend.dequeue_jobs("w", ["b", "a"], 5)] == [job.id]


@proves(
    "backend-api.EnqueueJob.post.5",
    "backend-api.EnqueueJob.post.6",
    "backend-api.EnqueueJob.error.4",
    "backend-api.EnqueueJob.must.3",
)
async def test_enqueue_job_refused_leaves_nothing(backend: Contract) -> None:
    job = a_job(type="")
    with pytest.raises(InvalidArgument) as raised:
        await backend.enqueue_job(job)
    assert raised.value.field == "type"
    assert await _missing(backend, job)
    assert (await backend.get_job_stats([])).total_jobs == 0
    assert await backend.dequeue_jobs("w", [], 5) == []
    # Nothing of the refused one is in the way of the right one.
    await backend.enqueue_job(replace(job, type="t"))


@proves("backend-api.EnqueueJob.expect.1")
async def test_enqueue_job_by_racing_callers_of_one_id(store: Store) -> None:
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


@proves(
    "backend-api.EnqueueJob.expect.1",
    "backend-api.Invariants.rule.1",
    "backend-api.EnqueueJob.must.5",
)
async def test_enqueue_job_by_many_callers_at_once(backend: Contract) -> None:
    jobs = [a_job() for _ in range(300)]
    duplicate = await submitted(backend)
    answers = await asyncio.gather(
        *(backend.enqueue_job(job) for job in [*jobs, duplicate]), return_exceptions=True
    )
    assert answers[:-1] == [job.id for job in jobs]
    assert isinstance(answers[-1], DuplicateJob)
    assert (await backend.get_job_stats([])).pending_jobs == 301


@proves(
    "backend-api.EnqueueJob.error.2",
    "backend-api.EnqueueJobs.error.2",
    "backend-api.DequeueJobs.error.1",
)
async def test_enqueue_and_dequeue_without_the_store(store: Store, backend: Contract) -> None:
    waiting = await submitted(backend)
    job, batch = a_job(), [a_job(), a_job()]
    await needs_the_store(
        store,
        backend,
        lambda: backend.enqueue_job(job),
        lambda: backend.enqueue_jobs(batch),
        lambda: backend.dequeue_jobs("w", [], 5),
    )
    assert await _missing(backend, job, *batch)
    assert (await backend.get_job(waiting.id)).state is JobState.INITIAL_PENDING


async def test_enqueue_job_in_two_namespaces_is_two_jobs(backend: Contract) -> None:
    for namespace in ("a", "b"):
        await backend.enqueue_job(
            Job(id="same", type="t", namespace=namespace, payload=namespace.encode())
        )
    assert (await backend.get_job("same", namespace="b")).payload == b"b"
    with pytest.raises(JobNotFound):
        await backend.get_job("same")


async def test_enqueue_job_stamps_a_job_without_a_time(backend: Contract) -> None:
    jobs = [a_job(), a_job()]
    await backend.enqueue_jobs(jobs)
    [first, second] = [await backend.get_job(job.id) for job in jobs]
    assert first.created_at == second.created_at
    assert first.created_at is not None
    assert first.eligible_at == first.created_at


async def test_enqueue_job_with_a_delay_or_a_time(backend: Contract) -> None:
    at = datetime.now(UTC) + timedelta(hours=3)
    scheduled = await backend.get_job((await submitted(backend, scheduled_at=at)).id)
    assert scheduled.eligible_at == at
    delayed = await backend.get_job((await submitted(backend, delay_s=90.0)).id)
    assert delayed.eligible_at is not None
    assert delayed.created_at is not None
    assert delayed.eligible_at - delayed.created_at == timedelta(seconds=90)
    # What they said is in eligible_at now, which a retry moves.
    for stored in (scheduled, delayed):
        assert (stored.scheduled_at, stored.delay_s) == (None, None)


@pytest.mark.parametrize("size", [3, 60])
async def test_enqueue_jobs_keeps_a_callback_url_until_the_job_is_deleted(
    backend: Contract, size: int
) -> None:
    urls = ["", "https://example.com/a", *[""] * (size - 3), "http://[::1]:8080/b"]
    jobs = [a_job(callback_url=url) for url in urls]
    await backend.enqueue_jobs(jobs)
    assert [(await backend.get_job(job.id)).callback_url for job in jobs] == urls
    await backend.cancel_jobs([], [jobs[1].id])
    assert (await backend.get_job(jobs[1].id)).callback_url == urls[1]
    await backend.delete_jobs([], [jobs[1].id])
    await backend.enqueue_job(replace(jobs[1], callback_url=""))
    assert (await backend.get_job(jobs[1].id)).callback_url == ""
