"""Claims beside others that hold the jobs in front, and claims whose line breaks midway."""

import asyncio
import os
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, LiteralString

import pytest
from tests.integration.postgres.conftest import Ask
from tests.integration.postgres.locking import until_waiting

from queue_operator.backends.postgres import PostgresBackend, claiming
from queue_operator.backends.postgres.claiming import Claims
from queue_operator.backends.postgres.groups import Group
from queue_operator.backends.postgres.reading import Reader
from queue_operator.backends.postgres.staging import Staging
from queue_operator.domain.errors import Unavailable
from queue_operator.domain.job import Assignment, Demand, Job, TypeDefaults
from queue_operator.domain.states import JobState
from queue_operator.testing.clauses import proves

_MADE_DUE: LiteralString = """
WITH made_due AS (
    UPDATE ready SET due = true FROM lane, namespace n
    WHERE lane.id = ready.lane_id AND n.id = lane.namespace_id AND n.name = %s AND NOT due
    RETURNING ready.job_no, ready.lane_id, ready.order_time
)
INSERT INTO arrival (lane_ids, firsts, first_nos, lasts, last_nos)
SELECT array_agg(lane_id), array_agg(order_time), array_agg(job_no), array_agg(order_time),
       array_agg(job_no)
FROM made_due
"""
_LOOKS = "FROM seen\nWHERE (("


def _ids(claimed: list[Assignment]) -> list[str]:
    return [one.job_id for one in claimed]


async def _claim(backend: PostgresBackend, namespace: str, limit: int) -> list[Assignment]:
    demand = Demand(assignee_id="w", limit=limit, namespace=namespace)
    return await backend.claim([demand], lease_ttl_s=60)


async def _submit(backend: PostgresBackend, namespace: str, count: int, type_: str = "t") -> None:
    jobs = [Job(id=f"{type_}{n:04}", type=type_, namespace=namespace) for n in range(count)]
    await backend.enqueue_jobs(jobs)


@proves("backend-api.DequeueJobs.must.9", "backend-api.ImplementationGuidelines.must.10")
@pytest.mark.parametrize("lanes", [1, 12], ids=["one lane", "many lanes"])
async def test_a_claim_looks_past_what_others_hold(
    backend: PostgresBackend, namespace: str, ask: Ask, lanes: int
) -> None:
    for lane in range(lanes):
        await _submit(backend, namespace, 60 // lanes, f"t{lane}")
    # Another claimer stands in the middle of its transaction, with the 30 oldest.
    await ask("BEGIN")
    held = await ask(
        "SELECT job.id FROM ready JOIN job USING (job_no) JOIN namespace n ON n.id = namespace_id"
        " WHERE n.name = %s ORDER BY order_time, job_no LIMIT 30 FOR UPDATE OF ready",
        namespace,
    )
    first = await _claim(backend, namespace, 20)
    second = await _claim(backend, namespace, 20)
    await ask("ROLLBACK")
    third = await _claim(backend, namespace, 40)
    assert (len(first), len(second), len(third)) == (20, 10, 30)
    # What was let go again is not passed over by a mark.
    assert sorted(_ids(third)) == sorted(one for (one,) in held)


@proves("backend-api.DequeueJobs.must.7", "backend-api.ImplementationGuidelines.must.11")
async def test_no_claim_beside_others_comes_back_short(dsn: str, namespace: str) -> None:
    backends = [await PostgresBackend.open(dsn, pool_size=2) for _ in range(4)]
    await _submit(backends[0], namespace, 1600)

    async def take(number: int) -> list[list[Assignment]]:
        demand = Demand(assignee_id=f"w{number}", limit=20, namespace=namespace)
        return [await backends[number % 4].claim([demand], lease_ttl_s=60) for _ in range(10)]

    taken = [one for many in await asyncio.gather(*map(take, range(8))) for one in many]
    assert {len(one) for one in taken} == {20}
    given = Counter(one.job_id for claimed in taken for one in claimed)
    assert (len(given), set(given.values())) == (1600, {1})
    for one in backends:
        await one.close()


async def test_a_row_that_moved_under_the_claim_is_not_taken_twice(
    backend: PostgresBackend,
    dsn: str,
    namespace: str,
    ask: Ask,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Somebody writes to the job between our look at it and our lock: it has another place."""
    await _submit(backend, namespace, 2)
    waits = "FROM seen\nWHERE (SELECT pg_advisory_xact_lock(7) IS NOT NULL) AND (("
    assert claiming._CLAIM.count(_LOOKS) == 1
    await ask("SELECT pg_advisory_lock(7)")
    with monkeypatch.context() as patched:
        patched.setattr(claiming, "_CLAIM", claiming._CLAIM.replace(_LOOKS, waits))
        claim = asyncio.create_task(_claim(backend, namespace, 2))
        await until_waiting(dsn, 1)
        await ask(
            "UPDATE ready SET due = due FROM job, namespace n WHERE job.job_no = ready.job_no"
            " AND n.id = namespace_id AND n.name = %s AND job.id = 't0000'",
            namespace,
        )
        await ask("SELECT pg_advisory_unlock(7)")
        claimed = await claim
    claimed += await _claim(backend, namespace, 2)
    assert sorted(_ids(claimed)) == ["t0000", "t0001"]
    rows = await ask(
        "SELECT (SELECT count(*) FROM ready WHERE ready.job_no = job.job_no),"
        " (SELECT count(*) FROM lease WHERE lease.job_no = job.job_no)"
        " FROM job JOIN namespace n ON n.id = namespace_id WHERE n.name = %s",
        namespace,
    )
    assert rows == [(0, 1), (0, 1)]


async def test_what_one_stream_got_is_given_out_though_the_next_could_not_be_asked_for(
    backend: PostgresBackend, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _submit(backend, namespace, 3, "a")
    await _submit(backend, namespace, 3, "b")
    take = Claims._take

    async def breaks(self: Claims, groups: Sequence[Group], *terms: Any) -> object:
        if any("b" in one.front.lane.key.type for group in groups for one in group.asked):
            for group in groups:
                group.leave({}, {}, known=False)
            raise Unavailable("the line is cut")
        return await take(self, groups, *terms)

    monkeypatch.setattr(Claims, "_take", breaks)
    # They overlap, and so they cannot be asked for together.
    demands = [
        Demand(assignee_id="w1", limit=3, namespace=namespace, types=frozenset({"a"})),
        Demand(assignee_id="w2", limit=3, namespace=namespace, types=frozenset({"a", "b"})),
    ]
    assert len(await backend.claim(demands, lease_ttl_s=60)) == 3
    with pytest.raises(Unavailable):
        await backend.claim(demands[1:], lease_ttl_s=60)


async def test_of_three_that_overlap_the_one_that_asked_before_is_served_before(
    backend: PostgresBackend, namespace: str
) -> None:
    await _submit(backend, namespace, 2, "a")
    demands = [
        Demand(assignee_id=name, limit=1, namespace=namespace, types=frozenset(types))
        for name, types in (("first", "a"), ("second", "ab"), ("third", "abc"))
    ]
    claimed = await backend.claim(demands, lease_ttl_s=60)
    assert [(one.assignee_id, one.job_id) for one in claimed] == [
        ("first", "a0000"),
        ("second", "a0001"),
    ]


async def test_streams_that_are_served_together_get_what_they_asked_for(
    backend: PostgresBackend, namespace: str
) -> None:
    """As many as they have room for, the jobs of the later one being the older ones."""
    await _submit(backend, namespace, 2, "b")
    await _submit(backend, namespace, 2, "a")
    demands = [
        Demand(assignee_id=f"for-{type_}", limit=2, namespace=namespace, types=frozenset(type_))
        for type_ in "ab"
    ]
    claimed = await backend.claim(demands, lease_ttl_s=60)
    assert sorted((one.assignee_id, one.job_id) for one in claimed) == [
        ("for-a", "a0000"),
        ("for-a", "a0001"),
        ("for-b", "b0000"),
        ("for-b", "b0001"),
    ]


async def test_no_younger_job_passes_older_ones_of_a_lane_that_is_not_looked_at_to_the_end(
    backend: PostgresBackend, namespace: str
) -> None:
    """Nor where another lane is not either."""
    for type_, count in (("old", 20), ("young", 20), ("c", 1), ("d", 1), ("e", 1)):
        await _submit(backend, namespace, count, type_)
    assert _ids(await _claim(backend, namespace, 10)) == [f"old{n:04}" for n in range(10)]


async def test_no_younger_job_passes_those_that_lie_in_more_places_than_are_asked_at_once(
    backend: PostgresBackend, other: PostgresBackend, namespace: str
) -> None:
    await other._arrivals.catch_up()
    now = datetime.now(UTC)
    # Each is told of alone, and lies before the one before.
    old = [
        Job(id=f"old{n}", type="a", namespace=namespace, created_at=now - timedelta(hours=n + 1))
        for n in range(10)
    ]
    for job in old:
        await backend.enqueue_job(job)
    await _submit(backend, namespace, 1, "young")
    other._arrivals.hint()
    assert set(_ids(await _claim(other, namespace, 10))) == {job.id for job in old}


@pytest.mark.parametrize("part", [(Reader, "by_id"), (Staging, "stage")], ids=["read", "stage"])
async def test_dequeue_gives_back_what_it_cannot_tell_of(
    dsn: str,
    backend: PostgresBackend,
    namespace: str,
    monkeypatch: pytest.MonkeyPatch,
    part: tuple[type, str],
) -> None:
    await _submit(backend, namespace, 2)

    async def breaks(*_: object) -> None:
        raise Unavailable("the line is cut")

    with monkeypatch.context() as patched:
        patched.setattr(*part, breaks)
        with pytest.raises(Unavailable):
            await backend.dequeue_jobs("w", [], 5, namespace=namespace)
    # After what is still to be given back.
    await backend.close()
    other = await PostgresBackend.open(dsn)
    jobs = await other.dequeue_jobs("w", [], 5, namespace=namespace)
    await other.close()
    assert [(job.id, job.state, job.attempt) for job in jobs] == [
        ("t0000", JobState.RUNNING, 1),
        ("t0001", JobState.RUNNING, 1),
    ]


@pytest.mark.parametrize("cause", ["another replica", "a late commit"])
async def test_many_jobs_behind_the_mark_are_found_without_a_pause(
    dsn: str, namespace: str, ask: Ask, cause: str
) -> None:
    """They came to lie there when the mark had passed; each claim takes a few of them."""
    first, second = [await PostgresBackend.open(dsn) for _ in range(2)]
    await _submit(first, namespace, 300)
    if cause == "another replica":
        for _ in range(3):
            assert len(await _claim(second, namespace, 100)) == 100
        assert await first.reset_running_jobs(namespace=namespace) == {"w": 300}
    else:
        # Their transaction began before that of the job that is claimed, and ends after it.
        await ask("UPDATE ready SET due = false")
        await ask("BEGIN")
        await ask(_MADE_DUE, namespace)
        await first.enqueue_job(Job(id="last", type="t", namespace=namespace))
        assert _ids(await _claim(second, namespace, 1)) == ["last"]
        await ask("COMMIT")
    # What another process does is known some milliseconds later without having heard of it.
    second._arrivals.hint()
    taken = [len(await _claim(second, namespace, 10)) for _ in range(30)]
    assert taken == [10] * 30
    for one in (first, second):
        await one.close()


async def test_types_with_whole_and_broken_seconds_are_claimed_together(
    backend: PostgresBackend, namespace: str
) -> None:
    jobs = [
        Job(id="a", type="a", namespace=namespace, timeout_s=30),
        Job(id="b", type="b", namespace=namespace, timeout_s=0.5, idempotency_key="k"),
        Job(id="c", type="c", namespace=namespace, delay_s=1, idempotency_key="l"),
    ]
    await backend.enqueue_jobs(jobs)
    defaults = {"a": TypeDefaults(timeout_s=30), "b": TypeDefaults(timeout_s=0.5)}
    demand = Demand(assignee_id="w", limit=2, namespace=namespace)
    claimed = await backend.claim([demand], lease_ttl_s=60, defaults=defaults)
    assert [one.timeout_s for one in claimed] == [30, 0.5]


async def test_a_cancelled_dequeue_gives_back_what_it_claimed(
    dsn: str, backend: PostgresBackend, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _submit(backend, namespace, 1)
    reads = asyncio.Event()

    async def never(*_: object) -> None:
        reads.set()
        await asyncio.Event().wait()

    with monkeypatch.context() as patched:
        patched.setattr(Reader, "by_id", never)
        call = asyncio.create_task(backend.dequeue_jobs("w", [], 1, namespace=namespace))
        await reads.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
    await backend.close()
    other = await PostgresBackend.open(dsn)
    [job] = await other.dequeue_jobs("w", [], 1, namespace=namespace)
    await other.close()
    assert (job.id, job.attempt) == ("t0000", 1)


@pytest.mark.parametrize("filters", [[()], [("a",), ("b",)]])
async def test_tokens_are_made_of_one_draw_of_the_system(
    dsn: str, namespace: str, filters: list[tuple[str, ...]]
) -> None:
    drawn: list[bytes] = []

    def entropy(count: int) -> bytes:
        drawn.append(os.urandom(count))
        return drawn[-1]

    backend = await PostgresBackend.open(dsn, entropy=entropy)
    kinds = [kind for types in filters for kind in types or ("t",)]
    names = [(kind, n) for kind in kinds for n in range(3)]
    jobs = [Job(id=f"{kind}{n}", type=kind, namespace=namespace) for kind, n in names]
    await backend.enqueue_jobs(jobs)
    demands = [
        Demand(assignee_id="w", limit=3, namespace=namespace, types=frozenset(types))
        for types in filters
    ]
    claimed = await backend.claim(demands, lease_ttl_s=60)
    await backend.close()
    assert len(claimed) == len(jobs)
    [random] = drawn
    halves = {random[place : place + 8].hex() for place in range(0, len(random), 8)}
    # No two jobs share theirs, and nothing was made of anything but what was drawn.
    assert {one.token.replace("-", "")[16:] for one in claimed} == halves
