"""What PostgreSQL takes into no index is the fault of whoever sends it: nobody else's call fails
for it, and nobody tries it again. Limits that settings may raise end before that.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from tests.integration.postgres.taking import claim

from queue_operator.backends.postgres import PostgresBackend
from queue_operator.backends.steering import Pause
from queue_operator.backends.worker_sessions import SessionRoll, WorkerSession
from queue_operator.domain.errors import InvalidArgument, QueueError
from queue_operator.domain.job import Demand, Job, ResourceRef
from queue_operator.domain.limits import MAX_ID_CHARACTERS, MAX_TAG_CHARACTERS, Limits
from queue_operator.domain.outcome import ErrorCategory, ErrorInfo, Outcome
from queue_operator.domain.states import Event

GOOD = Job(id="good", type="t")


def text(characters: int, seed: object = 0) -> str:
    """Four bytes a character, which no compression makes shorter."""
    rng = random.Random(repr(seed))  # noqa: S311
    return "".join(chr(rng.randrange(0x20000, 0x2A000)) for _ in range(characters))


@pytest.fixture
async def raised(own_dsn: str) -> AsyncIterator[PostgresBackend]:
    """Its limits are as high as they may be."""
    limits = Limits(id_characters=MAX_ID_CHARACTERS, tag_characters=MAX_TAG_CHARACTERS)
    backend = await PostgresBackend.open(own_dsn, limits=limits)
    yield backend
    await backend.close()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("id", text(700)),
        ("type", text(700)),
        ("namespace", text(700)),
        ("idempotency_key", text(700)),
        ("tags", frozenset({text(700)})),
    ],
)
async def test_what_an_index_does_not_take_is_named_and_refuses_nobody_else(
    backend: PostgresBackend, field: str, value: object
) -> None:
    """Here by way of those that store it: calls refuse it before."""
    bad = replace(Job(id=f"bad {field}", type="t"), **{field: value})  # type: ignore[arg-type]
    jobs = [Job(id=f"before {field}", type="t"), bad, Job(id=f"after {field}", type="t")]
    stored = await asyncio.gather(
        *(backend._submission.store_one(job) for job in jobs), return_exceptions=True
    )
    before, refused, after = stored
    assert isinstance(refused, InvalidArgument)
    assert refused.field == field
    assert "too long for an index of PostgreSQL" in refused.reason
    assert not isinstance(before, BaseException)
    assert not isinstance(after, BaseException)
    assert (await backend.get_job(f"before {field}")).id == f"before {field}"
    assert (await backend.get_job(f"after {field}")).id == f"after {field}"


async def test_an_index_of_somebody_else_refuses_the_job_that_it_does_not_take(
    own_dsn: str, raised: PostgresBackend
) -> None:
    with psycopg.connect(own_dsn, autocommit=True) as admin:
        admin.execute("CREATE INDEX by_payload ON queue_operator.job (payload)")
    payload = text(1000).encode()
    jobs = [replace(GOOD, id=f"{n}", payload=payload if n == 3 else b"1") for n in range(7)]
    answers = await asyncio.gather(*map(raised.enqueue_job, jobs), return_exceptions=True)
    assert [one for one in answers if isinstance(one, str)] == ["0", "1", "2", "4", "5", "6"]
    refused = answers[3]
    assert isinstance(refused, QueueError)
    assert not refused.retryable
    assert 'for index "by_payload"' in str(refused)
    with pytest.raises(QueueError, match="by_payload"):
        await raised.enqueue_jobs(jobs)


async def test_a_resource_that_an_index_does_not_take_is_refused_alone(
    own_dsn: str, raised: PostgresBackend
) -> None:
    with psycopg.connect(own_dsn, autocommit=True) as admin:
        admin.execute("CREATE INDEX by_payload ON queue_operator.job (payload)")
    jobs = [
        Job(
            id=f"{n}",
            type="t",
            payload=text(1000).encode() if n == 1 else b"1",
            resource=ResourceRef("cluster", f"{n}", "name"),
        )
        for n in range(4)
    ]
    taken = await raised.take_in(jobs)
    assert taken.new == ("0", "2", "3")
    [(uid, error)] = taken.refused.items()
    assert uid == "1"
    assert 'for index "by_payload"' in str(error)
    assert not error.retryable


async def test_at_the_highest_limits_every_index_takes_everything(
    own_dsn: str, raised: PostgresBackend
) -> None:
    """Each text of an index is as long as it may be, and so is each pair."""
    names = iter(text(MAX_ID_CHARACTERS, n) for n in range(100))
    resource = ResourceRef(next(names), next(names), next(names), 1)
    job = Job(id=next(names), type=next(names), namespace=next(names), idempotency_key=next(names))
    parent, other = replace(job, resource=resource), replace(job, id=next(names))
    await raised.submit([parent, replace(other, idempotency_key=next(names))])
    await raised.pause(Pause(namespace=job.namespace, type=job.type))
    assert await raised.resume(job.namespace, job.type)
    demand = Demand(assignee_id=next(names), limit=2, namespace=job.namespace)
    claimed = await raised.claim([demand], lease_ttl_s=60)
    assert {one.job_id for one in claimed} == {parent.id, other.id}
    await raised.cancel_jobs([], [parent.id], namespace=job.namespace)
    error = ErrorInfo("x", ErrorCategory.PERMANENT, next(names)[:255])
    settled = await raised.settle(
        [
            Outcome(one.job_id, Event.FAIL, namespace=job.namespace, token=one.token, error=error)
            for one in claimed
            if one.job_id == other.id
        ]
    )
    assert [one.error for one in settled] == [None]
    await raised.take_tokens(next(names), 1, rate_per_s=1, burst=1)
    session = WorkerSession(
        session_id=next(names), worker_name="w", namespace=job.namespace, replica=next(names)
    )
    await raised.open_session(session)
    await raised.keep_sessions(SessionRoll(replica=session.replica))
    assert [one.session_id for one in await raised.list_sessions()] == [session.session_id]
    # What the pipeline writes there has the same names.
    with psycopg.connect(own_dsn, autocommit=True) as admin:
        admin.execute(
            "INSERT INTO queue_operator.rollup_hour (hour, namespace, type, state, transitions,"
            " rate_per_s) VALUES (now(), %s, %s, 'UNKNOWN_STOPPED', 1, 1)",
            (job.namespace, job.type),
        )


@pytest.mark.parametrize(
    "tags",
    [
        {text(638)},
        {"x" * MAX_TAG_CHARACTERS},
        {text(100, n) for n in range(6)},
        {f"{n:072}" for n in range(32)},
    ],
    ids=["wide", "narrow", "some", "many"],
)
async def test_at_the_highest_limits_tags_are_stored_or_refused_by_name(
    raised: PostgresBackend, tags: set[str]
) -> None:
    job = Job(id="tagged", type="t", tags=frozenset(tags))
    assert await raised.enqueue_job(job) == "tagged"
    assert await claim(raised) == ["tagged"]
    with pytest.raises(InvalidArgument) as refused:
        await raised.enqueue_job(replace(job, id="more", tags=job.tags | {text(638, "more")}))
    assert refused.value.field == "tags"


@pytest.mark.parametrize("call", ["bucket", "replica", "roll.replica", "session.replica"])
async def test_what_is_named_by_programs_is_refused_by_name(
    backend: PostgresBackend, call: str
) -> None:
    long: Any = text(700)
    calls: dict[str, Callable[[], Awaitable[object]]] = {
        "bucket": lambda: backend.take_tokens(long, 1, rate_per_s=1, burst=1),
        "replica": lambda: backend.close_sessions(["s"], replica=long),
        "roll.replica": lambda: backend.keep_sessions(SessionRoll(replica=long)),
        "session.replica": lambda: backend.open_session(
            WorkerSession(session_id="s", worker_name="w", namespace="n", replica=long)
        ),
    }
    with pytest.raises(InvalidArgument) as refused:
        await calls[call]()
    assert refused.value.field == call


@pytest.mark.parametrize(
    ("limits", "field", "bound"),
    [
        (Limits(id_characters=331), "limits.id_characters", "330"),
        (Limits(tag_characters=2553), "limits.tag_characters", "2552"),
    ],
)
async def test_no_store_is_opened_with_limits_that_an_index_does_not_take(
    own_dsn: str, limits: Limits, field: str, bound: str
) -> None:
    with pytest.raises(InvalidArgument, match=f"from 1 to {bound}") as refused:
        await PostgresBackend.open(own_dsn, limits=limits)
    assert refused.value.field == field
