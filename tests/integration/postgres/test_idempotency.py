"""Idempotency keys: reused, raced for, given up by a rollback or with their job."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest
from tests.integration.postgres.conftest import Ask
from tests.integration.postgres.lengths import rounds
from tests.integration.postgres.locking import until_waiting
from tests.integration.postgres.watching import watched
from tests.waiting import DEADLINE_S

from queue_operator.backends.postgres import PostgresBackend
from queue_operator.domain.errors import DuplicateJob, JobNotFound, KeyConflict
from queue_operator.domain.job import Demand, Job
from queue_operator.domain.outcome import ErrorCategory, ErrorInfo, Outcome
from queue_operator.domain.states import TERMINAL, Event, JobState
from queue_operator.queue.operations import Operations
from queue_operator.queue.service import QueueService

JSON = "application/json"


def a_job(namespace: str, key: str = "K", **fields: Any) -> Job:
    return Job(
        **{
            "id": uuid.uuid4().hex,
            "type": "t",
            "namespace": namespace,
            "idempotency_key": key,
            "payload": b"{}",
            "content_type": JSON,
            **fields,
        }
    )


async def count(backend: PostgresBackend, namespace: str) -> int:
    return (await backend.get_job_stats([], namespace=namespace)).total_jobs


# The same, and not the same


@pytest.mark.parametrize(
    ("first", "second"),
    [(b'{"a":1,"b":2}', b'{ "b": 2, "a": 1 }'), (b'{"n":1}', b'{"n":1.0}'), (b"null", b" null")],
)
async def test_json_counts_by_value(
    backend: PostgresBackend, namespace: str, first: bytes, second: bytes
) -> None:
    job_id = await backend.enqueue_job(a_job(namespace, payload=first))
    repeat = a_job(namespace, payload=second, correlation_id="another")
    assert await backend.enqueue_job(repeat) == job_id
    [answer] = await backend.submit([repeat])
    assert (answer.job_id, answer.duplicate, answer.error) == (job_id, True, None)
    assert await count(backend, namespace) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"payload": b'{"a":2}'},
        {"payload": b""},
        {"type": "other"},
        {"tags": frozenset({"x"})},
        {"content_type": "text/plain"},
        {"max_attempts": 3},
        {"delay_s": 1.0},
    ],
)
async def test_other_content_under_a_key_is_refused_and_says_whose_it_is(
    backend: PostgresBackend, namespace: str, change: dict[str, Any]
) -> None:
    job_id = await backend.enqueue_job(a_job(namespace))
    other = a_job(namespace, **change)
    with pytest.raises(KeyConflict) as raised:
        await backend.enqueue_job(other)
    error = raised.value
    assert (error.field, error.key, error.job_id) == ("idempotency_key", "K", job_id)
    with pytest.raises(KeyConflict) as raised:
        await backend.enqueue_jobs([a_job(namespace, "L"), other])
    assert raised.value.field == "jobs[1].idempotency_key"
    assert await count(backend, namespace) == 1


async def test_payloads_that_are_no_json_count_by_bytes(
    backend: PostgresBackend, namespace: str
) -> None:
    text = {"content_type": "text/plain"}
    await backend.enqueue_job(a_job(namespace, payload=b'{"a":1}', **text))
    with pytest.raises(KeyConflict):
        await backend.enqueue_job(a_job(namespace, payload=b'{"a": 1}', **text))


async def test_a_repeat_of_the_very_same_submission_is_a_repeat_though_the_id_exists(
    backend: PostgresBackend, namespace: str
) -> None:
    job = a_job(namespace)
    assert await backend.enqueue_job(job) == job.id
    assert await backend.enqueue_job(job) == job.id
    [answer] = await backend.submit([job])
    assert answer.duplicate
    with pytest.raises(DuplicateJob):
        await backend.enqueue_job(replace(job, payload=b"[]"))


async def test_a_key_twice_in_a_batch_is_taken_as_if_in_sequence(
    backend: PostgresBackend, namespace: str
) -> None:
    jobs = [
        a_job(namespace, "A"),
        a_job(namespace, "A"),
        a_job(namespace, "B"),
        a_job(namespace, "A", type="other"),
        a_job(namespace, "B", depends_on=("nobody",)),
    ]
    answers = await backend.submit(jobs, atomic=False)
    assert [a.job_id for a in answers] == [jobs[n].id for n in (0, 0, 2, 3, 4)]
    assert [a.duplicate for a in answers] == [False, True, False, False, False]
    errors = [answer.error for answer in answers]
    assert isinstance(errors[3], KeyConflict)
    assert (errors[3].job_id, errors[3].field) == (jobs[0].id, "jobs[3].idempotency_key")
    assert isinstance(errors[4], KeyConflict)
    assert await count(backend, namespace) == 2


async def test_who_clashes_with_a_rejected_job_of_the_batch_gets_the_key(
    backend: PostgresBackend, namespace: str
) -> None:
    jobs = [a_job(namespace, depends_on=("nobody",)), a_job(namespace), a_job(namespace)]
    jobs.append(a_job(namespace, "", depends_on=(jobs[1].id,)))
    answers = await backend.submit(jobs, atomic=False)
    assert [answer.error is not None for answer in answers] == [True, False, False, False]
    assert [answer.job_id for answer in answers] == [jobs[n].id for n in (0, 1, 1, 3)]
    assert [answer.duplicate for answer in answers] == [False, False, True, False]


async def test_a_child_may_name_a_repeat_of_the_batch_as_its_parent(
    backend: PostgresBackend, namespace: str
) -> None:
    first = a_job(namespace)
    await backend.enqueue_job(first)
    repeat = a_job(namespace)
    child = a_job(namespace, "", depends_on=(repeat.id,))
    await backend.submit([child, repeat])
    assert (await backend.get_job(child.id, namespace=namespace)).waiting_for_dependencies
    await backend.cancel_jobs([], [first.id], namespace=namespace)
    assert (await backend.get_job(child.id, namespace=namespace)).state is JobState.UNSCHEDULED


# As long as the job is stored

ENDS = [Event.COMPLETE, Event.FAIL, Event.EXHAUST, Event.STOP, Event.LOSE, Event.HAND_BACK]


@pytest.mark.parametrize("event", ENDS)
async def test_a_key_belongs_to_its_job_in_every_state_until_the_job_is_deleted(
    backend: PostgresBackend, namespace: str, event: Event
) -> None:
    job_id = await backend.enqueue_job(a_job(namespace))
    demand = Demand(assignee_id="w", limit=1, namespace=namespace)
    [assignment] = await backend.claim([demand], lease_ttl_s=60)
    assert await backend.enqueue_job(a_job(namespace)) == job_id
    error = ErrorInfo("x", ErrorCategory.PERMANENT) if event is Event.EXHAUST else ErrorInfo("x")
    outcome = Outcome(job_id, event, namespace=namespace, token=assignment.token, error=error)
    [settled] = await backend.settle([outcome])
    assert settled.error is None
    assert await backend.enqueue_job(a_job(namespace)) == job_id
    with pytest.raises(KeyConflict):
        await backend.enqueue_job(a_job(namespace, type="other"))
    if settled.state not in TERMINAL:
        await backend.cancel_jobs([], [job_id], namespace=namespace)
    await backend.delete_jobs([], [job_id], namespace=namespace)
    other = a_job(namespace, type="other")
    assert await backend.enqueue_job(other) == other.id


async def test_retention_frees_a_key(backend: PostgresBackend, namespace: str) -> None:
    job_id = await backend.enqueue_job(a_job(namespace))
    demand = Demand(assignee_id="w", limit=1, namespace=namespace)
    [assignment] = await backend.claim([demand], lease_ttl_s=60)
    await backend.complete_job(job_id, b"", namespace=namespace, token=assignment.token)
    assert await backend.cleanup_expired_jobs(1e-6, namespace=namespace) == 1
    assert await backend.enqueue_job(a_job(namespace)) != job_id


async def test_a_key_is_of_its_namespace(backend: PostgresBackend, namespace: str) -> None:
    here, there = a_job(namespace), a_job(f"{namespace}-2", type="other")
    assert await backend.enqueue_job(here) == here.id
    assert await backend.enqueue_job(there) == there.id


# Races


async def test_racing_submits_of_one_key_make_one_job_and_all_get_its_id(
    replicas: list[PostgresBackend], namespace: str
) -> None:
    for n in range(rounds(short=20, long=500)):
        key = f"key-{n}"
        singles = [r.enqueue_job(a_job(namespace, key)) for r in replicas for _ in range(4)]
        batches = [
            r.enqueue_jobs([a_job(namespace, key), a_job(namespace, f"{key}-{k}")])
            for k, r in enumerate(replicas)
        ]
        one, many = await asyncio.gather(asyncio.gather(*singles), asyncio.gather(*batches))
        ids = {*one, *(answer[0] for answer in many)}
        assert len(ids) == 1
        await replicas[0].get_job(ids.pop(), namespace=namespace)
        assert await count(replicas[0], namespace) == (n + 1) * 4


async def test_of_racing_submits_of_other_content_one_wins_and_the_rest_are_told(
    replicas: list[PostgresBackend], namespace: str
) -> None:
    for n in range(rounds(short=10, long=200)):
        jobs = [a_job(namespace, f"key-{n}", payload=b"%d" % k) for k in range(9)]
        tries = [replicas[k % 3].enqueue_job(job) for k, job in enumerate(jobs)]
        answers = await asyncio.gather(*tries, return_exceptions=True)
        [winner] = [answer for answer in answers if isinstance(answer, str)]
        told = [answer.job_id for answer in answers if isinstance(answer, KeyConflict)]
        assert told == [winner] * 8


async def test_batches_with_the_same_keys_in_other_orders_do_not_deadlock(
    replicas: list[PostgresBackend],
    namespace: str,
    ask: Ask,
    dsn: str,
    no_deadlock: Callable[[], None],
) -> None:
    """Both stop at the key in the middle. Had each taken those before it as they came, they would
    now wait for each other.
    """
    held = await replicas[0].enqueue_job(a_job(namespace, "m"))
    await ask("CREATE TEMP TABLE held AS SELECT * FROM idempotency WHERE key = 'm'")
    await ask("DELETE FROM idempotency WHERE key = 'm'")
    await ask("BEGIN")
    await ask("INSERT INTO idempotency SELECT * FROM held")
    orders = ["amz", "zma", "mza"]
    batches = [[a_job(namespace, key) for key in order] for order in orders]
    tries = [
        asyncio.create_task(replica.enqueue_jobs(batch))
        for replica, batch in zip(replicas, batches, strict=True)
    ]
    await until_waiting(dsn, 3)
    await ask("ROLLBACK")
    answers = [
        dict(zip(order, await one, strict=True)) for order, one in zip(orders, tries, strict=True)
    ]
    no_deadlock()
    assert answers[0] == answers[1] == answers[2]
    assert held not in answers[0].values()
    await ask("DROP TABLE held")


async def test_one_caller_s_conflict_does_not_disturb_those_who_share_its_transaction(
    backend: PostgresBackend, namespace: str
) -> None:
    first = await backend.enqueue_job(a_job(namespace))
    good = [a_job(namespace, f"{n}" if n % 2 else "") for n in range(60)]
    jobs = [*good[:30], a_job(namespace, type="other"), a_job(namespace), *good[30:]]
    answers = await asyncio.gather(*map(backend.enqueue_job, jobs), return_exceptions=True)
    assert isinstance(answers[30], KeyConflict)
    assert answers[31] == first
    assert answers[:30] + answers[32:] == [job.id for job in good]
    assert await count(backend, namespace) == 61


Submit = Callable[[PostgresBackend, Job], Coroutine[Any, Any, str]]


async def _single(backend: PostgresBackend, job: Job) -> str:
    return await backend.enqueue_job(job)


async def _batch(backend: PostgresBackend, job: Job) -> str:
    return (await backend.enqueue_jobs([job]))[0]


@pytest.mark.parametrize("submit", [_single, _batch])
@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
async def test_nobody_is_told_of_a_job_that_was_rolled_back(
    backend: PostgresBackend, namespace: str, ask: Ask, dsn: str, submit: Submit, end: str
) -> None:
    """The key is being taken by a transaction that is still open."""
    first, second = a_job(namespace), a_job(namespace)
    await backend.enqueue_job(first)
    await ask("CREATE TEMP TABLE held AS SELECT * FROM idempotency WHERE key = 'K'")
    await ask("DELETE FROM idempotency WHERE key = 'K'")
    await ask("BEGIN")
    await ask("INSERT INTO idempotency SELECT * FROM held")
    submitting = asyncio.create_task(submit(backend, second))
    await until_waiting(dsn, 1)
    await ask("COMMIT" if end == "COMMIT" else "ROLLBACK")
    assert await submitting == (first.id if end == "COMMIT" else second.id)
    assert await count(backend, namespace) == (1 if end == "COMMIT" else 2)
    await ask("DROP TABLE held")


@pytest.fixture
async def patient(dsn: str) -> AsyncIterator[PostgresBackend]:
    """Its statements end with the test, however slow the machine is."""
    backend = await PostgresBackend.open(dsn, statement_timeout_s=DEADLINE_S)
    yield backend
    await backend.close()


@pytest.mark.parametrize("through", ["store", "queue"])
async def test_who_asks_for_a_key_that_is_being_taken_waits_alone(
    patient: PostgresBackend, namespace: str, ask: Ask, dsn: str, through: str
) -> None:
    """More of them than there are connections, and for longer than anybody else has to wait."""
    backend = patient
    operations = Operations(QueueService(backend))

    async def submit(job: Job) -> str:
        if through == "store":
            return await backend.enqueue_job(job)
        return (await operations.submit_one(job)).job_id

    first = a_job(namespace)
    await backend.enqueue_job(first)
    await ask("CREATE TEMP TABLE held AS SELECT * FROM idempotency WHERE key = 'K'")
    await ask("DELETE FROM idempotency WHERE key = 'K'")
    await ask("BEGIN")
    await ask("INSERT INTO idempotency SELECT * FROM held")
    repeats = [asyncio.create_task(submit(a_job(namespace))) for _ in range(24)]
    waiting = asyncio.create_task(backend.enqueue_jobs([a_job(namespace), a_job(namespace, "L")]))
    await until_waiting(dsn, 1)
    others = [a_job(namespace, f"{n}" if n % 2 else "") for n in range(26)]
    async with asyncio.timeout(DEADLINE_S):
        stored = await asyncio.gather(*map(submit, others))
        batch = [a_job(namespace, f"b{n}") for n in range(5)]
        await backend.enqueue_jobs(batch)
    assert stored == [job.id for job in others]
    assert not any(repeat.done() for repeat in (*repeats, waiting))
    await ask("COMMIT")
    assert set(await asyncio.gather(*repeats)) == {first.id}
    assert (await waiting)[0] == first.id
    await ask("DROP TABLE held")


@pytest.mark.parametrize("submit", [_single, _batch])
async def test_a_key_whose_job_is_being_deleted_is_free(
    backend: PostgresBackend, namespace: str, ask: Ask, dsn: str, submit: Submit
) -> None:
    first, second = a_job(namespace), a_job(namespace, type="other")
    await backend.enqueue_job(first)
    await backend.cancel_jobs([], [first.id], namespace=namespace)
    await ask("BEGIN")
    # The deletion stops at this row, and the submission at the key that it deletes.
    await ask("SELECT FROM idempotency WHERE key = 'K' FOR UPDATE")
    deleting = asyncio.create_task(backend.delete_jobs([], [first.id], namespace=namespace))
    await until_waiting(dsn, 1)
    submitting = asyncio.create_task(submit(backend, second))
    await ask("COMMIT")
    answers = await asyncio.gather(deleting, submitting, return_exceptions=True)
    assert answers[0] == 1
    # Before the deletion or after it, but nothing in between.
    if isinstance(answers[1], KeyConflict):
        assert await submit(backend, second) == second.id
    assert (await backend.get_job(second.id, namespace=namespace)).type == "other"
    with pytest.raises(JobNotFound):
        await backend.get_job(first.id, namespace=namespace)


async def test_jobs_without_keys_pay_nothing_for_those_with_one(dsn: str, namespace: str) -> None:
    async with watched(dsn, plans="auto") as (backend, seen):
        await backend.enqueue_jobs([a_job(namespace, "") for _ in range(4)])
        await backend.enqueue_job(a_job(namespace, ""))
        nodes = [node for plan in seen.plans for node in plan.nodes]
        assert [n for n in nodes if n.get("Relation Name") == "idempotency"] == []
        seen.clear()
        await backend.enqueue_job(a_job(namespace))
        assert any("idempotency" in plan.text for plan in seen.plans)
