"""Payloads, results and error texts of every size and content: what is stored comes back byte
for byte, and what cannot be stored never keeps a job from ending.
"""

import random
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Final

import pytest
from tests.integration.postgres.conftest import Ask

from queue_operator.backends.postgres import PostgresBackend
from queue_operator.backends.protocol import FailureSearch
from queue_operator.domain.dependencies import DependencyMode
from queue_operator.domain.errors import InvalidArgument, KeyConflict, PayloadTooLarge
from queue_operator.domain.idempotency import content_digest
from queue_operator.domain.job import Assignment, Demand, Job
from queue_operator.domain.outcome import ErrorCategory, ErrorInfo, Outcome
from queue_operator.domain.states import Event, JobState
from queue_operator.domain.transition import RESULT_NOT_STORABLE
from queue_operator.domain.validation import DEFAULT_LIMITS

KIB: Final = 1024
MIB: Final = 1024 * KIB
LIMIT: Final = DEFAULT_LIMITS.payload_bytes
JSON: Final = "application/json"
MARK: Final = "\N{REPLACEMENT CHARACTER}"
# As many as make a batch that is copied, and not inserted.
COPIED: Final = 50

Submit = Callable[..., Job]


@pytest.fixture
async def replica(dsn: str) -> AsyncIterator[PostgresBackend]:
    """Another process: it does not know which tokens the first gave out."""
    backend = await PostgresBackend.open(dsn)
    yield backend
    await backend.close()


@pytest.fixture
def job(namespace: str) -> Submit:
    def make(job_id: str = "a", **fields: object) -> Job:
        return Job(**{"id": job_id, "type": "t", "namespace": namespace, **fields})  # type: ignore[arg-type]

    return make


def noise(size: int) -> bytes:
    """Bytes that cannot be compressed, the same in every run."""
    return random.Random(size).randbytes(size)  # noqa: S311 (not for secrets)


def nested(depth: int, opening: bytes = b"[", closing: bytes = b"]") -> bytes:
    return opening * depth + b"0" + closing * depth


async def claim(backend: PostgresBackend, namespace: str, limit: int = 1) -> list[Assignment]:
    demand = Demand(assignee_id="w", limit=limit, namespace=namespace)
    return await backend.claim([demand], lease_ttl_s=600.0)


def completion(assignment: Assignment, result: bytes | None, **fields: object) -> Outcome:
    return Outcome(
        assignment.job_id,
        Event.COMPLETE,
        namespace=assignment.namespace,
        token=assignment.token,
        result=result,
        **fields,  # type: ignore[arg-type]
    )


# Sizes


@pytest.mark.parametrize("way", ["alone", "keyed", "copied"])
async def test_a_payload_up_to_the_limit_comes_back_byte_for_byte(
    backend: PostgresBackend, namespace: str, job: Submit, way: str
) -> None:
    sizes = {f"job-{size}": size for size in (0, 1, 256 * KIB, LIMIT)}
    jobs = [
        job(name, payload=noise(size), idempotency_key=name if way == "keyed" else "")
        for name, size in sizes.items()
    ]
    if way == "copied":
        await backend.enqueue_jobs([*jobs, *(job(f"more-{n}") for n in range(COPIED))])
    else:
        for one in jobs:
            await backend.enqueue_job(one)
    given = {one.job_id: one.payload for one in await claim(backend, namespace, 100)}
    for one in jobs:
        assert (await backend.get_job(one.id, namespace=namespace)).payload == one.payload
        assert given[one.id] == one.payload


async def test_a_payload_over_the_limit_is_refused_and_the_rest_of_its_batch_is_not(
    backend: PostgresBackend, namespace: str, job: Submit, ask: Ask
) -> None:
    stored: list[str] = []
    for size in (LIMIT + 1, 4 * MIB, 16 * MIB, 64 * MIB):
        large, first, last = job(payload=bytes(size)), job(f"{size}-1"), job(f"{size}-2")
        with pytest.raises(PayloadTooLarge) as alone:
            await backend.enqueue_job(large)
        told = alone.value.field, alone.value.size, alone.value.limit
        assert told == ("payload", size, LIMIT)
        with pytest.raises(PayloadTooLarge) as in_batch:
            await backend.enqueue_jobs([first, large])
        assert in_batch.value.field == "jobs[1].payload"
        answers = await backend.submit([first, large, last], atomic=False)
        assert [answer.error is None for answer in answers] == [True, False, True]
        assert isinstance(answers[1].error, PayloadTooLarge)
        stored += [first.id, last.id]
        assert await ids_of(ask, namespace) == sorted(stored)


async def ids_of(ask: Ask, namespace: str) -> list[str]:
    rows = await ask(
        "SELECT job.id FROM job JOIN namespace n ON n.id = namespace_id"
        ' WHERE n.name = %s ORDER BY job.id COLLATE "C"',
        namespace,
    )
    return [job_id for (job_id,) in rows]


@pytest.mark.parametrize("key", ["", "key-"], ids=["copied", "inserted"])
async def test_a_batch_of_64_mib_is_stored_handed_out_and_completed(
    dsn: str,
    backend: PostgresBackend,
    replica: PostgresBackend,
    namespace: str,
    job: Submit,
    key: str,
) -> None:
    payloads = {f"job-{n}": noise(MIB - n) + bytes(n) for n in range(64)}
    jobs = [
        job(job_id, payload=payload, idempotency_key=key and key + job_id)
        for job_id, payload in payloads.items()
    ]
    # Writing so much takes longer than a statement may that somebody waits for.
    impatient = await PostgresBackend.open(dsn, statement_timeout_s=0.5)
    assert await impatient.enqueue_jobs(jobs) == list(payloads)
    await impatient.close()
    claimed = await claim(backend, namespace, 64)
    assert {one.job_id: one.payload for one in claimed} == payloads
    # By the process that claimed them, and by another that has to look them up.
    for settler, some in (backend, claimed[:16]), (replica, claimed[16:32]):
        settled = await settler.settle([completion(one, one.payload) for one in some])
        assert {answer.state for answer in settled} == {JobState.COMPLETED}
        stored = await backend.get_job(some[7].job_id, namespace=namespace)
        assert stored.result == some[7].payload


async def test_a_result_of_1_mib_reaches_the_next_of_a_chain(
    backend: PostgresBackend, namespace: str, job: Submit
) -> None:
    child = job("child", depends_on=("a",), dependency_mode=DependencyMode.CHAIN)
    await backend.enqueue_jobs([job(), child])
    [parent] = await claim(backend, namespace)
    await backend.settle([completion(parent, noise(MIB), result_content_type="image/png")])
    [given] = await claim(backend, namespace)
    assert (given.parent_result, given.parent_content_type) == (noise(MIB), "image/png")


@pytest.mark.parametrize(("size", "who"), [(LIMIT + 1, "replica"), (16 * MIB, "backend")])
async def test_a_result_over_the_limit_ends_its_job_once_and_no_other(
    backend: PostgresBackend,
    replica: PostgresBackend,
    namespace: str,
    job: Submit,
    size: int,
    who: str,
) -> None:
    await backend.enqueue_jobs([job(name, max_attempts=5) for name in ("a", "b", "c")])
    claimed = await claim(backend, namespace, 3)
    settler = {"backend": backend, "replica": replica}[who]
    outcomes = [completion(one, bytes(size if one.job_id == "b" else 3)) for one in claimed]
    states = [answer.state for answer in await settler.settle(outcomes)]
    assert states == [JobState.COMPLETED, JobState.DEAD_LETTER, JobState.COMPLETED]
    # The worker did not hear the answer, and says it again.
    [again] = await settler.settle([outcomes[1]])
    assert (again.state, again.repeated, again.error) == (JobState.DEAD_LETTER, True, None)
    ended = await backend.get_job("b", namespace=namespace)
    assert ended.error is not None
    assert (ended.error.category, ended.error.code) == (
        ErrorCategory.PERMANENT,
        RESULT_NOT_STORABLE,
    )
    assert (ended.attempt, ended.retry_count, ended.result) == (1, 0, None)
    history = await backend.get_history("b", namespace=namespace)
    assert len(history.attempts) == 1
    assert await claim(backend, namespace, 3) == []


# Nesting


@pytest.mark.parametrize("shape", [(b"[", b"]"), (b'{"a":', b"}")], ids=["array", "object"])
async def test_no_depth_of_a_document_is_too_much_for_the_store(
    backend: PostgresBackend, namespace: str, job: Submit, shape: tuple[bytes, bytes]
) -> None:
    for depth in (50, 100, 101, 200, 1000, 20_000, 100_000):
        payload, name = nested(depth, *shape), f"{depth}"
        deep = job(name, payload=payload, content_type=JSON, idempotency_key=name)
        assert await backend.enqueue_job(deep) == name
        again = replace(deep, id=f"{depth}-again")
        assert await backend.enqueue_jobs([again]) == [name]
        with pytest.raises(KeyConflict):
            await backend.enqueue_job(replace(again, payload=nested(depth - 1, *shape)))
        [one] = await claim(backend, namespace)
        assert one.payload == payload
        await backend.settle([completion(one, payload, result_content_type=JSON)])
        assert (await backend.get_job(name, namespace=namespace)).result == payload


def test_whether_a_submission_is_a_repeat_does_not_depend_on_who_calls(job: Submit) -> None:
    def called_from(frames: int, deep: Job) -> bytes:
        return called_from(frames - 1, deep) if frames else content_digest(deep)

    # Python gives up on a document at some depth of its own stack, the caller's included.
    for depth in range(10, 1000, 10):
        deep = job(payload=nested(depth), content_type=JSON)
        assert called_from(0, deep) == called_from(400, deep), depth


# Empty and missing


EMPTY: Final = (b"", b"null", b"{}", b"[]", b'""', b"0", b"false", b" ", b"\x00")


@pytest.mark.parametrize(
    ("content_type", "copied"),
    [(JSON, False), (JSON, True), ("application/octet-stream", True), ("text/plain", False)],
)
async def test_empty_payloads_are_kept_apart(
    backend: PostgresBackend, namespace: str, job: Submit, content_type: str, copied: bool
) -> None:
    jobs = [
        job(f"job-{n}", payload=payload, content_type=content_type)
        for n, payload in enumerate(EMPTY)
    ]
    filling = [job(f"more-{n}", payload=b"x") for n in range(COPIED if copied else 0)]
    await backend.enqueue_jobs([*jobs, *filling])
    given = {one.job_id: one for one in await claim(backend, namespace, 100)}
    assert len(given) == len(jobs) + len(filling)
    for one in jobs:
        stored = await backend.get_job(one.id, namespace=namespace)
        assert (stored.payload, stored.content_type) == (one.payload, content_type)
        assert given[one.id].payload == one.payload


async def test_a_payload_that_is_left_out_is_empty(
    backend: PostgresBackend, namespace: str, job: Submit
) -> None:
    await backend.enqueue_job(job(idempotency_key="k"))
    assert (await backend.get_job("a", namespace=namespace)).payload == b""
    assert await backend.enqueue_job(job("b", payload=b"", idempotency_key="k")) == "a"


@pytest.mark.parametrize("content_type", [JSON, "application/octet-stream"])
async def test_one_key_does_not_take_one_empty_payload_for_another(
    backend: PostgresBackend, namespace: str, job: Submit, content_type: str
) -> None:
    held = [
        job(f"{n}", payload=payload, content_type=content_type, idempotency_key=f"key-{n}")
        for n, payload in enumerate(EMPTY)
    ]
    assert await backend.enqueue_jobs(held) == [one.id for one in held]
    for first in held:
        repeat = [replace(first, id="again")]
        others = [
            replace(first, id=f"other-{n}", payload=other.payload)
            for n, other in enumerate(held)
            if other is not first
        ]
        assert await backend.enqueue_jobs(repeat) == [first.id]
        answers = await backend.submit(others, atomic=False)
        assert {type(answer.error) for answer in answers} == {KeyConflict}
    assert (await backend.get_job_stats([], namespace=namespace)).total_jobs == len(EMPTY)


@pytest.mark.parametrize("who", ["backend", "replica"])
async def test_a_result_of_any_bytes_or_none_is_kept_as_it_is(
    backend: PostgresBackend, replica: PostgresBackend, namespace: str, job: Submit, who: str
) -> None:
    results = dict(enumerate([None, *EMPTY, b"\xff\xfe", bytes(range(256))]))
    for n in results:
        child = job(f"child-{n}", depends_on=(f"{n}",), dependency_mode=DependencyMode.CHAIN)
        await backend.enqueue_jobs([job(f"{n}"), child])
    settler = {"backend": backend, "replica": replica}[who]
    parents = await claim(backend, namespace, len(results))
    settled = await settler.settle([completion(p, results[int(p.job_id)]) for p in parents])
    assert {answer.state for answer in settled} == {JobState.COMPLETED}
    children = await claim(settler, namespace, len(results))
    given = {int(child.job_id.removeprefix("child-")): child.parent_result for child in children}
    assert given == results
    for n, result in results.items():
        assert (await backend.get_job(f"{n}", namespace=namespace)).result == result


# Error texts


TEXTS: Final = {
    "emoji": ("\N{COLLISION SYMBOL} boom \N{FAMILY}\u200d\N{GIRL}", None),
    "NUL": ("a\x00b", f"a{MARK}b"),
    "lone surrogate": ("a\ud800b\udfff", f"a{MARK}b{MARK}"),
    "only what cannot be stored": ("\x00\ud800", MARK * 2),
    "control characters": ("\x01\x1b[31m\r\n\x7f\x85\u2028", None),
    "a path that was no UTF-8": (b"caf\xe9.csv".decode(errors="surrogateescape"), f"caf{MARK}.csv"),
    "escapes": ("\\u0000 \\ud800 \\", None),
    "quotes": ("'; DROP TABLE job; -- \" $1 %s %(x)s {}", None),
    "empty": ("", None),
    "10 MB": ("x" * 10_000_000, "x" * DEFAULT_LIMITS.error_characters),
    "10 MB of emoji": ("\N{PILE OF POO}" * 2_500_000, "\N{PILE OF POO}" * 8192),
}


def mixed_up(text: str) -> ErrorInfo:
    """`text` wherever an error has one."""
    context = {f"{n}{text[:300]}": text for n in range(100)}
    return ErrorInfo(text, ErrorCategory.TEMPORARY, text, text, context)


async def test_an_error_of_any_text_is_recorded_and_the_job_goes_on(
    backend: PostgresBackend, namespace: str, job: Submit
) -> None:
    for name, (text, safe) in TEXTS.items():
        first, other = job(name), job(f"beside {name}")
        await backend.enqueue_jobs([first, other])
        claimed = await claim(backend, namespace, 2)
        failure = failing(claimed[0], Event.FAIL, text)
        answers = await backend.settle([failure, completion(claimed[1], b"")])
        assert [one.state for one in answers] == [JobState.FAILED_RETRY, JobState.COMPLETED], name
        await _is_shown(backend, first, text if safe is None else safe)
        # Whoever comes next gets the job, and it can end.
        [again] = await claim(backend, namespace, 2)
        assert (again.job_id, again.attempt) == (name, 2)
        [ended] = await backend.settle([failing(again, Event.EXHAUST, text)])
        assert ended.state is JobState.DEAD_LETTER, name


def failing(one: Assignment, event: Event, text: str) -> Outcome:
    error = mixed_up(text)
    return Outcome(one.job_id, event, namespace=one.namespace, token=one.token, error=error)


async def _is_shown(backend: PostgresBackend, job: Job, message: str) -> None:
    """By the job, by the search and by the history alike."""
    error = (await backend.get_job(job.id, namespace=job.namespace)).error
    assert error is not None
    assert error.message == message
    assert len(error.code) <= 255
    assert len(error.stack_trace) <= DEFAULT_LIMITS.stack_characters
    assert len(error.context) <= 64
    waiting = frozenset({JobState.FAILED_RETRY})
    page = await backend.search_failures(FailureSearch(namespace=job.namespace, states=waiting))
    assert [one.error for one in page.jobs] == [error]
    history = await backend.get_history(job.id, namespace=job.namespace)
    assert [attempt.error for attempt in history.attempts] == [error]


@pytest.mark.parametrize("text", ["a\x00b", "a\ud800b"])
async def test_the_library_refuses_such_a_text_and_leaves_the_job_to_its_caller(
    backend: PostgresBackend, namespace: str, job: Submit, text: str
) -> None:
    await backend.enqueue_job(job())
    [one] = await claim(backend, namespace)
    with pytest.raises(InvalidArgument) as raised:
        await backend.fail_job("a", text, namespace=namespace, token=one.token)
    assert raised.value.field == "error_msg"
    assert (await backend.get_job("a", namespace=namespace)).state is JobState.RUNNING
    await backend.fail_job("a", "\N{COLLISION SYMBOL}", namespace=namespace, token=one.token)
    [again] = await claim(backend, namespace)
    assert again.attempt == 2
