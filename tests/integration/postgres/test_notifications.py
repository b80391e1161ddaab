"""Wake-ups do not depend on what jobs are called or on how many there are: a notification never
carries a name, an id or a payload.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from typing import Final

import psycopg
import pytest
from psycopg import AsyncConnection, Notify
from tests.integration.postgres.conftest import Ask
from tests.waiting import DEADLINE_S

from queue_operator.backends.news import MOST_KINDS
from queue_operator.backends.postgres import PostgresBackend
from queue_operator.backends.protocol import JobSearch, Topic
from queue_operator.domain.errors import InvalidArgument
from queue_operator.domain.job import Demand, Job
from queue_operator.domain.outcome import Outcome
from queue_operator.domain.states import Event, JobState
from queue_operator.domain.validation import DEFAULT_LIMITS

CHANNEL: Final = "queue_operator"
# What PostgreSQL takes for a channel, and for a message.
CHANNEL_BYTES: Final = 63
MESSAGE_BYTES: Final = 8000
THE_END: Final = "the end"

NAMES: Final = {
    "43 bytes": "a" * 43,
    "57 bytes": "b" * 57,
    "63 bytes": "c" * 63,
    "64 bytes": "d" * 64,
    "255 bytes": "e" * 255,
    "64 bytes of accents": "\N{LATIN SMALL LETTER E WITH ACUTE}" * 32,
    "510 bytes of accents": "\N{LATIN SMALL LETTER E WITH ACUTE}" * 255,
    "1020 bytes of emoji": "\N{FIRE}" * 255,
    "quotes": "it's \"quoted\" `so` $$ and \\ '' ; --",
    "spaces": "  with  spaces\tand\nlines ",
    "percent": "100 % %s %(name)s %%",
    "capitals": "Queue OPERATOR",
    "like the channel": CHANNEL,
    "a keyword": "select",
    "like JSON": '{"ready": 1}',
    "braces and commas": "{a,b},NULL",
}


@pytest.fixture
async def line(dsn: str) -> AsyncIterator[AsyncConnection]:
    """Hears notifications and nothing else: without one, nobody polls."""
    async with await AsyncConnection.connect(dsn, autocommit=True) as connection:
        await connection.execute("LISTEN queue_operator")
        yield connection


async def heard(line: AsyncConnection, topic: Topic) -> Notify:
    """The next notification that tells of the topic; that none comes fails the test."""
    async for notice in line.notifies(timeout=DEADLINE_S):
        if topic in json.loads(notice.payload)["versions"]:
            return notice
    raise AssertionError(f"no notification of {topic}")


async def all_heard(line: AsyncConnection, backend: PostgresBackend, ask: Ask) -> list[Notify]:
    """All notifications up to now. Closing the backend sends those that are waiting."""
    await backend.close()
    await ask("SELECT pg_notify(%s, %s)", CHANNEL, THE_END)
    notices: list[Notify] = []
    async for notice in line.notifies(timeout=DEADLINE_S):
        if notice.payload == THE_END:
            return notices
        notices.append(notice)
    raise AssertionError("the line is dead")


def is_small(notice: Notify) -> bool:
    """True when what it tells, names of jobs among it, is far below the limit."""
    told = json.loads(notice.payload)
    return (
        len(notice.payload.encode()) < MESSAGE_BYTES * 0.6
        and set(told) <= {"origin", "versions", "kinds"}
        and all(isinstance(version, int) for version in told["versions"].values())
    )


async def test_a_job_of_any_name_wakes_whoever_waits_and_is_handed_out(
    backend: PostgresBackend, line: AsyncConnection
) -> None:
    for name in NAMES.values():
        tag = name[: DEFAULT_LIMITS.tag_characters]
        job = Job(id=name, type=name, namespace=name, tags=frozenset({tag}))
        await _wake_claim_cancel(backend, line, job, name)


async def _wake_claim_cancel(
    backend: PostgresBackend, line: AsyncConnection, job: Job, assignee: str
) -> None:
    await backend.enqueue_job(job)
    assert is_small(await heard(line, Topic.READY))
    types = frozenset({job.type})
    demand = Demand(
        assignee_id=assignee, limit=1, namespace=job.namespace, tags=job.tags, types=types
    )
    [claimed] = await backend.claim([demand], lease_ttl_s=600.0)
    assert (claimed.job_id, claimed.type, claimed.tags) == (job.id, job.type, job.tags)
    cancelled = await backend.cancel_jobs(job.tags, [job.id], namespace=job.namespace)
    assert is_small(await heard(line, Topic.CANCEL))
    assert [request.assignee_id for request in cancelled.requests] == [assignee]
    page = await backend.search_jobs(JobSearch(namespace=job.namespace, tags=job.tags, types=types))
    assert [(found.id, found.state) for found in page.jobs] == [(job.id, JobState.CANCELLING)]
    await backend.stop_job(job.id, "", namespace=job.namespace)
    assert await backend.delete_jobs([], [job.id], namespace=job.namespace) == 1


async def test_a_listener_is_woken_for_a_job_of_a_long_name(
    backend: PostgresBackend, line: AsyncConnection
) -> None:
    async with aclosing(backend.listen()) as topics, asyncio.timeout(DEADLINE_S):  # type: ignore[type-var]
        await anext(topics)
        await backend.enqueue_job(Job(id="a", type="t", namespace=NAMES["510 bytes of accents"]))
        while Topic.READY not in await anext(topics):
            pass
        assert is_small(await heard(line, Topic.READY))


@pytest.mark.parametrize(
    "event", [Event.FAIL, Event.RELEASE, Event.HAND_BACK, Event.LOSE, Event.RETRY_NOW]
)
async def test_a_job_that_comes_back_wakes_whoever_waits(
    backend: PostgresBackend, line: AsyncConnection, ask: Ask, namespace: str, event: Event
) -> None:
    await backend.enqueue_job(Job(id="a", type="t", namespace=namespace))
    await heard(line, Topic.READY)
    [claimed] = await backend.claim(
        [Demand(assignee_id="w", limit=1, namespace=namespace)], lease_ttl_s=600.0
    )
    if event is Event.RETRY_NOW:
        dead = Outcome("a", Event.EXHAUST, namespace=namespace, token=claimed.token)
        await backend.settle([dead])
    token = None if event is Event.RETRY_NOW else claimed.token
    await backend.settle([Outcome("a", event, namespace=namespace, token=token)])
    told = [json.loads(notice.payload) for notice in await all_heard(line, backend, ask)]
    assert [one for one in told if Topic.READY in one["versions"]]


async def test_of_many_kinds_none_is_named(
    backend: PostgresBackend, line: AsyncConnection, namespace: str
) -> None:
    """One more than may be told apart, and few that are too long to be told."""
    few = [Job(id=f"f{n}", type=f"type-{n}", namespace=namespace) for n in range(3)]
    many = [Job(id=f"m{n}", type=f"type-{n}", namespace=namespace) for n in range(MOST_KINDS + 1)]
    tags = [frozenset({f"{n}-{place}-".ljust(120, "x") for n in range(18)}) for place in range(4)]
    long = [
        Job(id=f"l{n}", type="t", namespace=namespace, tags=carried)
        for n, carried in enumerate(tags)
    ]
    named = []
    for jobs in (few, many, long):
        await backend.enqueue_jobs(jobs)
        notice = await heard(line, Topic.READY)
        assert is_small(notice)
        named.append(len(json.loads(notice.payload).get("kinds", ())))
    assert named == [3, 0, 0]


async def test_names_that_differ_only_beyond_the_bytes_of_a_channel_are_two(
    backend: PostgresBackend, namespace: str
) -> None:
    same = namespace + "x" * (CHANNEL_BYTES + 1)
    here, there = f"{same}-here", f"{same}-there"
    for space in (here, there):
        await backend.enqueue_job(Job(id="a", type=f"{same} {space}", namespace=space))
    demand = Demand(assignee_id="w", limit=5, namespace=here)
    [claimed] = await backend.claim([demand], lease_ttl_s=600.0)
    assert claimed.namespace == here
    other = await backend.get_job("a", namespace=there)
    assert other.state is JobState.INITIAL_PENDING


@pytest.mark.parametrize("field", ["namespace", "type", "id", "tags"])
async def test_a_name_over_the_limit_is_refused_up_front(
    backend: PostgresBackend, namespace: str, field: str
) -> None:
    good = Job(id="a", type="t", namespace=namespace)
    long = frozenset({"x" * 129}) if field == "tags" else "x" * 256
    with pytest.raises(InvalidArgument) as raised:
        await backend.enqueue_job(replace(good, **{field: long}))  # type: ignore[arg-type]
    assert raised.value.field == field


async def test_five_thousand_jobs_of_10_kb_in_one_transaction_are_told_of_in_short(
    backend: PostgresBackend, line: AsyncConnection, namespace: str, ask: Ask
) -> None:
    payload = bytes(range(256)) * 40
    jobs = [
        Job(id=f"{'x' * 200}-{n}", type="t", namespace=namespace, payload=payload)
        for n in range(5000)
    ]
    await backend.enqueue_jobs(jobs)
    notices = await all_heard(line, backend, ask)
    assert any(Topic.READY in json.loads(notice.payload)["versions"] for notice in notices)
    assert all(is_small(notice) for notice in notices)
    assert len(notices) == 1


async def test_five_thousand_single_jobs_at_once_are_told_of_less_often(
    backend: PostgresBackend, line: AsyncConnection, namespace: str, ask: Ask
) -> None:
    jobs = [
        Job(
            id=f"job-{n}",
            type="t",
            namespace=namespace,
            idempotency_key=f"key-{n}" if n % 2 else "",
        )
        for n in range(5000)
    ]
    await asyncio.gather(*(backend.enqueue_job(job) for job in jobs))
    assert (await backend.get_job_stats([], namespace=namespace)).pending_jobs == 5000
    notices = await all_heard(line, backend, ask)
    assert all(is_small(notice) for notice in notices)
    assert 1 <= len(notices) <= 500


async def test_two_thousand_cancels_in_one_call_are_told_of_in_short(
    backend: PostgresBackend, line: AsyncConnection, namespace: str, ask: Ask
) -> None:
    ids = [f"{'y' * 200}-{n}" for n in range(2000)]
    await backend.enqueue_jobs([Job(id=i, type="t", namespace=namespace) for i in ids])
    demand = Demand(assignee_id=namespace, limit=1000, namespace=namespace)
    running = {one.job_id for one in await backend.claim([demand], lease_ttl_s=600.0)}
    cancelled = await backend.cancel_jobs([], ids, namespace=namespace)
    assert set(cancelled.cancelled_job_ids) == set(ids)
    assert {request.job_id for request in cancelled.requests} == running
    # The requests themselves are in the tables, for whoever was woken.
    pending = await backend.pending_cancels([namespace])
    assert {request.job_id for request in pending.requests} == running
    notices = await all_heard(line, backend, ask)
    assert any(Topic.CANCEL in json.loads(notice.payload)["versions"] for notice in notices)
    assert all(is_small(notice) for notice in notices)


async def test_a_message_as_long_as_the_ids_would_have_been_refused(ask: Ask) -> None:
    """What the short messages are for: the limit is real."""
    with pytest.raises(psycopg.errors.InvalidParameterValue):
        await ask("SELECT pg_notify(%s, %s)", CHANNEL, "x" * MESSAGE_BYTES)
