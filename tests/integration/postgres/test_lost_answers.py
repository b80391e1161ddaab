"""A connection that is lost after the request was sent and before its answer came: whoever asks
again with the same token, key or id changes nothing that was done.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from itertools import count
from typing import TypeVar

import pytest
from tests.integration.postgres.conftest import Ask
from tests.integration.postgres.proxy import Proxy, proxied

from queue_operator.backends.postgres import PostgresBackend
from queue_operator.domain.errors import DuplicateJob, Unavailable
from queue_operator.domain.job import Demand, Job
from queue_operator.domain.lease import Held, LeaseStatus
from queue_operator.domain.outcome import ErrorInfo, Outcome, Settled
from queue_operator.domain.states import Event, JobState

TTL_S = 60.0
MOST_CALLS = 300

T = TypeVar("T")


@pytest.fixture
async def line(dsn: str) -> AsyncIterator[tuple[Proxy, PostgresBackend]]:
    """A backend whose line can be cut."""
    async with proxied(dsn) as (proxy, address):
        backend = await PostgresBackend.open(address, pool_size=2)
        yield proxy, backend
        proxy.disarm()
        await backend.close()


async def insist(call: Callable[[], Awaitable[T]]) -> T:
    """Asks again for as long as the server cannot be reached."""
    while True:
        try:
            return await call()
        except Unavailable:
            continue


async def cut_everywhere(
    proxy: Proxy,
    prepare: Callable[[int], Awaitable[Callable[[], Awaitable[T]]]],
    check: Callable[[int, T], Awaitable[bool]],
) -> None:
    """Makes a call, cut at its first exchange, another cut at its second, and so on until one
    ends before its cut; each is asked again. `check` says whether the call that was cut had
    been carried out, which must have happened at some point: a wake-up sent meanwhile may have
    been cut instead, so this goes on until it has.
    """
    carried_out: set[bool] = set()
    numbers = iter(range(MOST_CALLS))
    while True not in carried_out:
        for exchange in count(1):
            n = next(numbers)
            call = await prepare(n)
            proxy.cut_at(exchange)
            try:
                await call()
            except Unavailable:
                answer = await insist(call)
                carried_out.add(await check(n, answer))
            if proxy.is_armed():
                break
        proxy.disarm()


async def claim(backend: PostgresBackend, namespace: str, job_id: str) -> str:
    """The token of a job of a type of its own, so that no other is claimed."""
    await insist(lambda: _enqueue(backend, Job(id=job_id, type=job_id, namespace=namespace)))
    demand = Demand(assignee_id="w", limit=1, namespace=namespace, types=frozenset({job_id}))
    [assignment] = await insist(lambda: backend.claim([demand], lease_ttl_s=TTL_S))
    assert assignment.job_id == job_id
    return assignment.token


async def _enqueue(backend: PostgresBackend, job: Job) -> None:
    try:
        await backend.enqueue_job(job)
    except DuplicateJob:
        return


@pytest.mark.parametrize("path", ["fast", "slow"])
@pytest.mark.parametrize(
    ("event", "after"),
    [(Event.COMPLETE, JobState.COMPLETED), (Event.FAIL, JobState.FAILED_RETRY)],
)
async def test_an_outcome_whose_answer_was_lost_counts_once(
    line: tuple[Proxy, PostgresBackend],
    backend: PostgresBackend,
    namespace: str,
    ask: Ask,
    path: str,
    event: Event,
    after: JobState,
) -> None:
    proxy, cut = line

    async def prepare(n: int) -> Callable[[], Awaitable[list[Settled]]]:
        # Who claimed a job itself completes it in one statement.
        token = await claim(cut if path == "fast" else backend, namespace, f"{n}")
        outcome = Outcome(
            f"{n}", event, namespace=namespace, token=token, result=b"r", error=ErrorInfo("x")
        )
        return lambda: cut.settle([outcome])

    async def check(n: int, answers: list[Settled]) -> bool:
        [answer] = answers
        assert (answer.error, answer.state) == (None, after)
        job = await backend.get_job(f"{n}", namespace=namespace)
        assert (job.state, job.transition, job.attempt) == (after, 3, 1)
        assert job.retry_count == int(event is Event.FAIL)
        events = await ask(
            "SELECT event FROM job_event, unnest(job_nos) AS no JOIN job ON job_no = no"
            " WHERE job.id = %s AND job.namespace_id ="
            " (SELECT id FROM namespace WHERE name = %s) ORDER BY seq",
            f"{n}",
            namespace,
        )
        assert [name for (name,) in events] == ["SUBMIT", "CLAIM", event.value]
        await backend.cancel_jobs([], [f"{n}"], namespace=namespace)
        return answer.repeated

    await cut_everywhere(proxy, prepare, check)


async def test_a_renewal_whose_answer_was_lost_is_asked_for_again(
    line: tuple[Proxy, PostgresBackend], backend: PostgresBackend, namespace: str
) -> None:
    proxy, cut = line
    held = Held("a", await claim(backend, namespace, "a"), namespace)
    for exchange in range(1, 4):
        proxy.cut_at(exchange)
        [answer] = await insist(lambda: cut.extend_leases([held], lease_ttl_s=TTL_S))
        assert answer.status is LeaseStatus.CURRENT
    job = await backend.get_job("a", namespace=namespace)
    assert (job.state, job.transition) == (JobState.RUNNING, 2)


async def test_a_submission_whose_answer_was_lost_is_stored_once(
    line: tuple[Proxy, PostgresBackend], backend: PostgresBackend, namespace: str, ask: Ask
) -> None:
    proxy, cut = line
    ids = count()

    async def prepare(n: int) -> Callable[[], Awaitable[str]]:
        # A submitter without ids of its own makes a new one each time.
        return lambda: cut.enqueue_job(
            Job(id=f"{next(ids)}", type="t", namespace=namespace, idempotency_key=f"{n}")
        )

    stored: list[str] = []

    async def check(n: int, job_id: str) -> bool:
        assert (await backend.get_job(job_id, namespace=namespace)).idempotency_key == f"{n}"
        stored.append(job_id)
        # Of two ids the first was stored, or the second.
        return job_id != f"{next(ids) - 1}"

    await cut_everywhere(proxy, prepare, check)
    by_key = await ask("SELECT count(*), count(DISTINCT key) FROM idempotency")
    stats = await backend.get_job_stats([], namespace=namespace)
    assert by_key == [(stats.total_jobs, stats.total_jobs)]
    assert len(set(stored)) == len(stored)


async def test_of_many_who_share_a_transaction_that_is_cut_nobody_is_lost(
    line: tuple[Proxy, PostgresBackend], backend: PostgresBackend, namespace: str
) -> None:
    proxy, cut = line
    callers = 200
    for exchange in range(1, 10):
        proxy.cut_at(exchange)
        jobs = [
            Job(
                id=f"{exchange}-{n}",
                type="t",
                namespace=namespace,
                idempotency_key=f"{exchange}-{n}" if n % 2 else "",
            )
            for n in range(callers)
        ]
        answers = await asyncio.gather(
            *(insist(partial(_enqueue_or_find, cut, job)) for job in jobs)
        )
        assert answers == [job.id for job in jobs]
        stats = await backend.get_job_stats([], namespace=namespace)
        assert stats.total_jobs == callers * exchange


async def _enqueue_or_find(backend: PostgresBackend, job: Job) -> str:
    try:
        return await backend.enqueue_job(job)
    except DuplicateJob as error:
        return error.job_ids[0]


async def test_of_outcomes_that_share_a_transaction_that_is_cut_none_is_lost(
    line: tuple[Proxy, PostgresBackend], backend: PostgresBackend, namespace: str, ask: Ask
) -> None:
    proxy, cut = line
    number = 200
    for exchange in range(1, 10):
        ids = [f"{exchange}-{n}" for n in range(number)]
        await backend.enqueue_jobs([Job(id=i, type="t", namespace=namespace) for i in ids])
        claimer = cut if exchange % 2 else backend
        demand = Demand(assignee_id="w", limit=number, namespace=namespace)
        claimed = await insist(partial(claimer.claim, [demand], lease_ttl_s=TTL_S))
        outcomes = [
            Outcome(
                a.job_id,
                Event.COMPLETE if n % 3 else Event.STOP,
                namespace=namespace,
                token=a.token,
                result=b"r",
            )
            for n, a in enumerate(claimed)
        ]
        proxy.cut_at(exchange)
        answers = await insist(partial(cut.settle, outcomes))
        assert [answer.error for answer in answers] == [None] * number
        proxy.disarm()
    ended = await ask(
        "SELECT count(*), count(DISTINCT no) FROM job_event, unnest(job_nos) AS no"
        " JOIN job ON job_no = no JOIN namespace ON namespace.id = job.namespace_id"
        " WHERE event IN ('COMPLETE', 'STOP') AND namespace.name = %s",
        namespace,
    )
    assert ended == [(9 * number, 9 * number)]
