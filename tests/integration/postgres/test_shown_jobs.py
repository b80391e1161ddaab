"""What is read of jobs to write the status of their resources: what it shows, and no more."""

import pickle
import uuid
from collections.abc import Awaitable, Callable

import pytest

from queue_operator.backends.postgres import PostgresBackend
from queue_operator.domain.job import Job, ResourceRef
from queue_operator.domain.outcome import ErrorCategory, ErrorInfo, Outcome
from queue_operator.domain.shown import show
from queue_operator.domain.states import Event

MIB = 1024 * 1024
KIB = 1024
TEXT = "text/plain"
Step = Callable[[PostgresBackend, Job], Awaitable[object]]


def a_job(namespace: str, **fields: object) -> Job:
    uid = str(uuid.uuid4())
    job = Job(
        id=uid,
        type="mail",
        namespace=namespace,
        resource=ResourceRef("cluster-1", uid, f"mail-{uid[:4]}", 3),
        **fields,  # type: ignore[arg-type]
    )
    return job


async def settle(backend: PostgresBackend, job: Job, event: Event, **fields: object) -> None:
    outcome = Outcome(job.id, event, namespace=job.namespace, **fields)  # type: ignore[arg-type]
    [settled] = await backend.settle([outcome])
    assert settled.error is None


async def claimed(backend: PostgresBackend, job: Job) -> None:
    await backend.dequeue_jobs("worker", [], 1, namespace=job.namespace)


async def completed(backend: PostgresBackend, job: Job) -> None:
    await settle(backend, job, Event.COMPLETE, result=b"done " * 1000, result_content_type=TEXT)


async def failed(backend: PostgresBackend, job: Job) -> None:
    error = ErrorInfo("no " * 2000, ErrorCategory.TEMPORARY, "NO_ANSWER", "at line 7\n" * 900)
    await settle(backend, job, Event.FAIL, error=error)


async def given_up(backend: PostgresBackend, job: Job) -> None:
    error = ErrorInfo("no such user", ErrorCategory.PERMANENT, "NO_SUCH_USER")
    await settle(backend, job, Event.EXHAUST, error=error)


async def cancelled(backend: PostgresBackend, job: Job) -> None:
    await backend.cancel_jobs((), [job.id], namespace=job.namespace, reason="not needed")


LIVES: dict[str, list[Step]] = {
    "waits": [],
    "runs": [claimed],
    "completed": [claimed, completed],
    "is tried again": [claimed, failed],
    "gave up": [claimed, given_up],
    "cancelled before": [cancelled],
    "being cancelled": [claimed, cancelled],
}


@pytest.mark.parametrize("life", LIVES)
async def test_it_is_what_the_whole_job_says(
    backend: PostgresBackend, namespace: str, life: str
) -> None:
    job = a_job(namespace, payload=b"x" * 1000, tags=frozenset({"a"}), max_attempts=3)
    await backend.take_in([job])
    for step in LIVES[life]:
        await step(backend, job)
    whole = await backend.get_job(job.id, namespace=namespace)
    names = [(namespace, job.id)]
    assert await backend.shown_jobs(names) == {names[0]: show(whole)}
    [entry] = [one for one in await backend.pending_mirrors() if one.job.id == job.id]
    assert entry.job == show(whole)


async def test_it_is_small_however_large_the_job(backend: PostgresBackend, namespace: str) -> None:
    tags = frozenset(f"{n:03}{'t' * 120}" for n in range(19))
    job = a_job(namespace, payload=b"x" * MIB, tags=tags, correlation_id="c" * 255)
    await backend.take_in([job])
    await claimed(backend, job)
    await failed(backend, job)
    await backend.dequeue_jobs("worker", [], 1, namespace=namespace)
    await settle(backend, job, Event.COMPLETE, result=b"x" * MIB, result_content_type=TEXT)
    [shown] = (await backend.shown_jobs([(namespace, job.id)])).values()
    assert len(shown.message) <= KIB + 1
    assert shown.result_head == b"x" * KIB
    assert shown.result_bytes == MIB
    assert len(shown.message) + len(shown.result_head) <= 2 * KIB + 1
    # With its names and times.
    assert len(pickle.dumps(shown)) < 4 * KIB


async def test_jobs_without_a_resource_are_shown_too_and_what_is_not_there_is_left_out(
    backend: PostgresBackend, namespace: str
) -> None:
    await backend.enqueue_job(Job(id="plain", type="mail", namespace=namespace))
    names = [(namespace, "plain"), (namespace, "nobody"), ("nowhere", "plain")]
    shown = await backend.shown_jobs(names)
    assert list(shown) == [(namespace, "plain")]
    assert shown[namespace, "plain"].resource is None
