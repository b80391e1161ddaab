"""Idempotency keys: one job per key, whoever asks how often."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

import pytest

from queue_operator.domain.errors import DuplicateJob, InvalidArgument, JobNotFound, KeyConflict
from queue_operator.domain.job import Job
from queue_operator.domain.ordering import Priority
from queue_operator.domain.retry import Backoff
from queue_operator.domain.states import Event, JobState
from queue_operator.testing.driving import a_job, apply, claim, submitted
from queue_operator.testing.store import Contract, Store
from queue_operator.testing.table import TERMINAL


def _keyed(key: str = "k", **fields: object) -> Job:
    return a_job(**{"type": "t", "payload": b"p", "idempotency_key": key, **fields})


_ENDINGS: Final = {
    Event.COMPLETE: JobState.COMPLETED,
    Event.STOP: JobState.STOPPED,
    Event.EXHAUST: JobState.DEAD_LETTER,
    Event.MARK_UNKNOWN_STOPPED: JobState.UNKNOWN_STOPPED,
}


async def _only(backend: Contract, job: Job) -> bool:
    """True when `job` is stored and no other."""
    assert (await backend.get_job(job.id)).idempotency_key == job.idempotency_key
    return (await backend.get_job_stats([])).total_jobs == 1


async def test_a_repeat_gives_the_first_jobs_id(backend: Contract) -> None:
    first, again = _keyed(), _keyed()
    assert await backend.enqueue_job(first) == first.id
    assert await backend.enqueue_job(again) == first.id
    assert await backend.enqueue_jobs([again]) == [first.id]
    [answer] = await backend.submit([again])
    assert (answer.job_id, answer.duplicate, answer.error) == (first.id, True, None)
    assert await _only(backend, first)
    with pytest.raises(JobNotFound):
        await backend.get_job(again.id)


async def test_a_repeat_under_the_same_id_is_a_repeat(backend: Contract) -> None:
    job = _keyed()
    assert await backend.enqueue_job(job) == job.id
    assert await backend.enqueue_job(job) == job.id
    [answer] = await backend.submit([job], atomic=False)
    assert (answer.job_id, answer.duplicate) == (job.id, True)
    # Without its key it is just an id that is taken.
    with pytest.raises(DuplicateJob):
        await backend.enqueue_job(replace(job, idempotency_key=""))
    assert await _only(backend, job)


async def test_the_correlation_and_the_created_time_are_no_content(backend: Contract) -> None:
    first = _keyed(correlation_id="a")
    await backend.enqueue_job(first)
    assert await backend.enqueue_job(_keyed(correlation_id="b")) == first.id
    assert (await backend.get_job(first.id)).correlation_id == "a"


async def test_json_counts_by_value_and_other_content_by_bytes(backend: Contract) -> None:
    first = _keyed(payload=b'{"a": 1, "b": [2.0]}', content_type="application/json")
    await backend.enqueue_job(first)
    same = _keyed(payload=b'{"b":[2],"a":1.0}', content_type="application/json")
    assert await backend.enqueue_job(same) == first.id
    other = _keyed(payload=b'{"b":[2],"a":1.5}', content_type="application/json")
    with pytest.raises(KeyConflict):
        await backend.enqueue_job(other)
    text = _keyed("text", payload=b'{"a": 1}', content_type="text/plain")
    await backend.enqueue_job(text)
    with pytest.raises(KeyConflict):
        await backend.enqueue_job(
            _keyed("text", payload=b'{"a":1}', content_type="text/plain"),
        )


_OTHER: Final[list[dict[str, Any]]] = [
    {"type": "u"},
    {"payload": b"q"},
    {"content_type": "text/plain"},
    {"tags": frozenset({"a"})},
    {"priority": Priority.HIGH},
    {"delay_s": 5.0},
    {"scheduled_at": datetime(2030, 1, 1, tzinfo=UTC)},
    {"max_attempts": 3},
    {"timeout_s": 9.0},
    {"backoff": Backoff()},
    {"callback_url": "https://example.com"},
]


@pytest.mark.parametrize("change", _OTHER, ids=lambda change: next(iter(change)))
async def test_a_key_with_other_content_is_refused(
    backend: Contract, change: dict[str, Any]
) -> None:
    first, other = _keyed(), _keyed(**change)
    await backend.enqueue_job(first)
    with pytest.raises(KeyConflict) as alone:
        await backend.enqueue_job(other)
    assert (alone.value.field, alone.value.key, alone.value.job_id) == (
        "idempotency_key",
        "k",
        first.id,
    )
    with pytest.raises(KeyConflict) as in_batch:
        await backend.enqueue_jobs([a_job(), other])
    assert (in_batch.value.field, in_batch.value.job_id) == ("jobs[1].idempotency_key", first.id)
    assert await _only(backend, first)


async def test_a_key_belongs_to_its_namespace(backend: Contract) -> None:
    here, there = _keyed(), _keyed(namespace="there", payload=b"other")
    assert await backend.enqueue_job(here) == here.id
    assert await backend.enqueue_job(there) == there.id


async def test_a_key_twice_in_a_batch_is_as_if_in_sequence(backend: Contract) -> None:
    first, again, other = _keyed(), _keyed(), a_job()
    assert await backend.enqueue_jobs([first, other, again]) == [first.id, other.id, first.id]
    assert (await backend.get_job_stats([])).total_jobs == 2
    fresh, clash = _keyed("new"), _keyed("new", payload=b"q")
    with pytest.raises(KeyConflict) as raised:
        await backend.enqueue_jobs([fresh, clash])
    assert (raised.value.field, raised.value.job_id) == ("jobs[1].idempotency_key", fresh.id)
    with pytest.raises(JobNotFound):
        await backend.get_job(fresh.id)


@pytest.mark.parametrize("atomic", [True, False])
async def test_a_submission_twice_in_a_batch_is_as_if_sent_apart(
    backend: Contract, atomic: bool
) -> None:
    job, parent = _keyed(), a_job()
    child = _keyed("child", depends_on=(job.id, parent.id))
    answers = await backend.submit([job, job, child, parent, child], atomic=atomic)
    assert [(a.job_id, a.duplicate, a.error) for a in answers] == [
        (job.id, False, None),
        (job.id, True, None),
        (child.id, False, None),
        (parent.id, False, None),
        (child.id, True, None),
    ]
    assert (await backend.get_job_stats([])).total_jobs == 3
    assert (await backend.get_job(child.id)).depends_on == (job.id, parent.id)
    # Under one id and one key there is other content, or none: an id that is taken.
    for other in (replace(job, payload=b"q"), replace(job, idempotency_key="")):
        fresh = replace(job, id=f"{job.id}-2", idempotency_key="fresh")
        same_id = replace(other, id=fresh.id)
        with pytest.raises(DuplicateJob) as raised:
            await backend.enqueue_jobs([fresh, same_id])
        assert raised.value.indexes == (1,)


async def test_every_key_that_is_taken_is_named(backend: Contract) -> None:
    firsts = [_keyed(f"k-{n}") for n in range(3)]
    await backend.enqueue_jobs(firsts)
    clashes = [_keyed(f"k-{n}", payload=b"q") for n in range(3)]
    batch = [clashes[0], a_job(), clashes[1], clashes[2]]
    with pytest.raises(KeyConflict) as raised:
        await backend.enqueue_jobs(batch)
    error = raised.value
    assert (error.field, error.key, error.job_id) == (
        "jobs[0].idempotency_key",
        "k-0",
        firsts[0].id,
    )
    assert (error.indexes, error.job_ids) == ((0, 2, 3), tuple(job.id for job in firsts))
    assert [(one.field, one.code, one.job_id) for one in error.findings] == [
        ("jobs[0].idempotency_key", "DUPLICATE", firsts[0].id),
        ("jobs[2].idempotency_key", "DUPLICATE", firsts[1].id),
        ("jobs[3].idempotency_key", "DUPLICATE", firsts[2].id),
    ]
    assert (await backend.get_job_stats([])).total_jobs == 3


async def test_all_that_the_store_finds_wrong_with_a_batch_is_named(backend: Contract) -> None:
    taken, first = await submitted(backend), _keyed()
    await backend.enqueue_job(first)
    batch = [a_job(depends_on=("nobody",)), _keyed(payload=b"q"), a_job(), taken]
    with pytest.raises(DuplicateJob) as raised:
        await backend.enqueue_jobs(batch)
    assert raised.value.indexes == (3,)
    assert [(one.field, one.code) for one in raised.value.findings] == [
        ("jobs[0].depends_on[0]", "INVALID_REQUEST"),
        ("jobs[1].idempotency_key", "DUPLICATE"),
        ("jobs[3].id", "DUPLICATE"),
    ]


async def test_a_batch_that_is_not_atomic_answers_each_key(backend: Contract) -> None:
    first = _keyed()
    await backend.enqueue_job(first)
    again, clash, fresh = _keyed(), _keyed(payload=b"q"), _keyed("new")
    answers = await backend.submit([again, clash, fresh], atomic=False)
    assert [(a.job_id, a.duplicate) for a in answers] == [
        (first.id, True),
        (clash.id, False),
        (fresh.id, False),
    ]
    assert isinstance(answers[1].error, KeyConflict)
    assert answers[1].error.field == "jobs[1].idempotency_key"
    assert (await backend.get_job_stats([])).total_jobs == 2


async def test_an_id_that_a_repeat_names_is_not_taken(backend: Contract) -> None:
    """It is never stored: a job beside it that clashes is refused for its key."""
    first = _keyed()
    again = _keyed()
    clash = replace(again, payload=b"q")
    answers = await backend.submit([first, clash, again], atomic=False)
    assert [(a.job_id, a.duplicate) for a in (answers[0], answers[2])] == [
        (first.id, False),
        (first.id, True),
    ]
    assert isinstance(answers[1].error, KeyConflict)
    assert (answers[1].error.field, answers[1].error.job_id) == (
        "jobs[1].idempotency_key",
        first.id,
    )


async def test_a_key_of_a_rejected_job_is_free_for_the_next(backend: Contract) -> None:
    orphan = a_job(depends_on=("nobody",))
    first = _keyed(depends_on=(orphan.id,))
    second = _keyed(payload=b"q")
    answers = await backend.submit([first, orphan, second], atomic=False)
    assert [answer.error is None for answer in answers] == [False, False, True]
    assert await _only(backend, second)


async def test_a_job_that_waits_for_one_that_clashes_is_refused_and_its_key_is_free(
    backend: Contract,
) -> None:
    clash = _keyed(payload=b"q")
    first = _keyed(depends_on=(clash.id,))
    answers = await backend.submit([first, clash], atomic=False)
    # As in sequence: when the first came, what it waits for was not there.
    assert isinstance(answers[0].error, InvalidArgument)
    assert (answers[1].error, answers[1].job_id) == (None, clash.id)
    assert await _only(backend, clash)


async def test_a_key_is_free_when_all_that_stood_before_it_are_refused(backend: Contract) -> None:
    needed, second = _keyed("other", depends_on=("nobody",)), _keyed(payload=b"q")
    first = _keyed(depends_on=(needed.id,))
    answers = await backend.submit([first, needed, second], atomic=False)
    assert [(type(a.error), a.job_id) for a in answers] == [
        (InvalidArgument, first.id),
        (InvalidArgument, needed.id),
        (type(None), second.id),
    ]
    assert await _only(backend, second)


async def test_a_parent_may_be_named_by_an_id_that_repeats_another(backend: Contract) -> None:
    parent, again = _keyed(), _keyed()
    child = a_job(depends_on=(again.id,))
    assert await backend.enqueue_jobs([parent, again, child]) == [parent.id, parent.id, child.id]
    assert (await backend.get_job(child.id)).waiting_for_dependencies
    token = (await claim(backend, parent)).token
    await backend.complete_job(parent.id, b"", token=token)
    assert not (await backend.get_job(child.id)).waiting_for_dependencies


@pytest.mark.parametrize("state", TERMINAL)
async def test_a_key_is_taken_whatever_became_of_its_job(
    backend: Contract, state: JobState
) -> None:
    job = _keyed()
    await backend.enqueue_job(job)
    if state is JobState.UNSCHEDULED:
        await backend.cancel_jobs([], [job.id])
    else:
        event = next(event for event, ending in _ENDINGS.items() if ending is state)
        assert (await apply(backend, job, event, (await claim(backend, job)).token)).state is state
    assert await backend.enqueue_job(_keyed()) == job.id


async def test_a_deleted_jobs_key_is_free(backend: Contract) -> None:
    job, other = _keyed(), _keyed(payload=b"q")
    await backend.enqueue_job(job)
    await backend.cancel_jobs([], [job.id])
    await backend.delete_jobs([], [job.id])
    assert await backend.enqueue_job(other) == other.id
    assert await _only(backend, other)


async def test_a_cleaned_up_jobs_key_is_free(backend: Contract, store: Store) -> None:
    job, other = _keyed(), _keyed(payload=b"q")
    await backend.enqueue_job(job)
    await backend.complete_job(job.id, b"", token=(await claim(backend, job)).token)
    await store.age(100.0)
    assert await backend.cleanup_expired_jobs(50.0) == 1
    assert await backend.enqueue_job(other) == other.id


async def test_a_refused_batch_leaves_its_keys_free(backend: Contract) -> None:
    taken = await submitted(backend)
    with pytest.raises(DuplicateJob):
        await backend.enqueue_jobs([_keyed(), taken])
    with pytest.raises(InvalidArgument):
        await backend.enqueue_jobs([_keyed(), a_job(depends_on=("nobody",))])
    other = _keyed(payload=b"q")
    assert await backend.enqueue_job(other) == other.id


async def test_racing_submissions_under_one_key_are_one_job(store: Store) -> None:
    backends = [await store.open() for _ in range(4)]
    for round_ in range(5):
        tries = [_keyed(f"k-{round_}") for _ in range(16)]
        ids = await asyncio.gather(
            *(backends[n % 4].enqueue_job(job) for n, job in enumerate(tries))
        )
        assert len(set(ids)) == 1
        assert ids[0] in {job.id for job in tries}
        assert (await backends[0].get_job(ids[0])).idempotency_key == f"k-{round_}"
    assert (await backends[0].get_job_stats([])).total_jobs == 5


async def test_racing_batches_never_name_a_job_that_is_not_there(store: Store) -> None:
    backends = [await store.open() for _ in range(4)]
    taken = await submitted(backends[0])
    for round_ in range(5):
        # Every second batch holds the key and is then refused for an id that is taken.
        batches = [[_keyed(f"k-{round_}"), taken if n % 2 else a_job()] for n in range(8)]
        answers = await asyncio.gather(
            *(backends[n % 4].enqueue_jobs(batch) for n, batch in enumerate(batches)),
            return_exceptions=True,
        )
        named = {answer[0] for answer in answers if isinstance(answer, list)}
        assert len(named) == 1
        assert all(isinstance(answer, DuplicateJob) for answer in answers[1::2])
        assert (await backends[0].get_job(named.pop())).idempotency_key == f"k-{round_}"


async def test_a_key_of_255_characters_and_none(backend: Contract) -> None:
    long = _keyed("ü" * 255)
    assert await backend.enqueue_job(long) == long.id
    assert await backend.enqueue_job(_keyed("ü" * 255)) == long.id
    without = [_keyed(""), _keyed("")]
    assert await backend.enqueue_jobs(without) == [job.id for job in without]
