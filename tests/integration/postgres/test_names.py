"""Names cost only while they are used: a tag set of its own for each job, and what is left."""

import asyncio
import uuid
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise

import psycopg
import pytest
from psycopg.rows import TupleRow
from tests.integration.postgres.watching import at_most, watched

from queue_operator.backends.postgres import PostgresBackend, tidying
from queue_operator.backends.postgres import lanes as known_lanes
from queue_operator.backends.postgres.roll_ups import RollUps
from queue_operator.backends.protocol import StatsWindow
from queue_operator.domain.job import Assignment, Demand, Job
from queue_operator.domain.ordering import Priority
from queue_operator.domain.outcome import ErrorInfo, Outcome
from queue_operator.domain.states import Event, JobState

MANY = 3000
"""More lanes than are asked in one statement."""
OTHER = Demand(assignee_id="w", limit=1, types=frozenset({"other"}))
LANES_BY_NAME = "lane_namespace_id_type_id_priority_tags_key"


@pytest.fixture
def dsn(own_dsn: str) -> str:
    return own_dsn


def own_tags(count: int, **fields: object) -> list[Job]:
    return [
        Job(id=uuid.uuid4().hex, type="t", tags=frozenset({f"order={n}", "pool=a"}), **fields)  # type: ignore[arg-type]
        for n in range(count)
    ]


def new_tags(count: int, **fields: object) -> list[Job]:
    """Of lanes that nobody has used before."""
    return [replace(job, tags=job.tags | {f"only={job.id}"}) for job in own_tags(count, **fields)]


async def claim(backend: PostgresBackend, limit: int) -> list[Assignment]:
    demand = Demand(assignee_id="w", limit=limit, tags=frozenset({"pool=a"}))
    return await backend.claim([demand], lease_ttl_s=600)


async def complete(backend: PostgresBackend, claimed: list[Assignment]) -> None:
    outcomes = [Outcome(one.job_id, Event.COMPLETE, token=one.token) for one in claimed]
    assert [one.error for one in await backend.settle(outcomes)] == [None] * len(outcomes)


async def left(dsn: str) -> dict[str, int]:
    tables = ("lane", "job_type", "namespace", "lane_count")
    async with await psycopg.AsyncConnection.connect(dsn) as connection:
        counts = {}
        for table in tables:
            text = f"SELECT count(*) FROM queue_operator.{table}"
            row = await (await connection.execute(text.encode())).fetchone()
            counts[table] = row[0] if row else -1
        return counts


async def tidy(backend: PostgresBackend, *, hidden_s: float = 0.0) -> None:
    """As an hour later, when nobody noted anything any more."""
    await backend._counts.fold_all()
    # Retired, then seen by the roll-ups, then removed; of namespaces, hidden and then removed.
    for _ in range(3):
        await backend._housekeeping.tidying.tidy(unused_s=0.0, hidden_s=hidden_s)
        await RollUps(backend._pool).roll_up(10_000, waits=True)


async def test_lanes_of_a_batch_are_interned_by_one_statement(dsn: str) -> None:
    async with watched(dsn, plans="auto") as (backend, seen):
        await backend.enqueue_jobs(own_tags(1))
        seen.clear()
        await backend.enqueue_jobs(own_tags(500))
        texts = [plan.text for plan in seen.plans]
        # The lanes, numbers of jobs, and what stores a batch of any kind.
        assert sum("nextval('lane_id_seq')" in text for text in texts) == 1
        assert len(texts) <= 8, "\n".join(texts)


@pytest.mark.parametrize("plans", ["force_generic_plan", "force_custom_plan"])
async def test_who_makes_only_new_lanes_stops_looking_for_them(dsn: str, plans: str) -> None:
    async with watched(dsn, plans=plans) as (backend, seen):
        await backend.enqueue_jobs(own_tags(1))
        looks = []
        for _ in range(5):
            seen.clear()
            await backend.enqueue_jobs(new_tags(200))
            [plan] = [one for one in seen.plans if "nextval('lane_id_seq')" in one.text]
            by_name = [one for one in plan.scans if one.get("Index Name") == LANES_BY_NAME]
            looks.append(sum(one["Actual Loops"] for one in by_name))
        assert looks == [200, 200, 200, 0, 0]


async def test_a_lane_that_nobody_looked_for_is_not_made_twice(
    dsn: str, backend: PostgresBackend
) -> None:
    other = await PostgresBackend.open(dsn)
    for _ in range(4):
        await backend.enqueue_jobs(new_tags(200))
    assert backend._lanes._all_new >= 3
    theirs = new_tags(200)
    await other.enqueue_jobs(theirs)
    ours = [replace(job, id=f"again-{job.id}") for job in theirs]
    await backend.enqueue_jobs([*ours, *new_tags(100, priority=Priority.HIGH)])
    assert (await left(dsn))["lane"] == 4 * 200 + 200 + 100
    assert backend._lanes._all_new == 0
    assert len(await claim(backend, 2000)) == 4 * 200 + 2 * 200 + 100
    await other.close()


async def test_numbers_that_are_in_use_when_they_begin_anew_are_passed_over(
    dsn: str, backend: PostgresBackend
) -> None:
    await backend.enqueue_jobs(own_tags(MANY))
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        await connection.execute("SELECT setval('queue_operator.lane_id_seq', 1, false)")
    await backend.enqueue_job(Job(id="one", type="other"))
    assert (await left(dsn))["lane"] == MANY + 1
    assert [one.job_id for one in await backend.claim([OTHER], lease_ttl_s=60)] == ["one"]


async def test_lanes_read_before_another_history_was_noted_are_not_remembered(
    backend: PostgresBackend,
) -> None:
    await backend.enqueue_jobs(own_tags(1))
    lanes = backend._lanes
    [(lane_id, (key, _))] = lanes._keys.items()
    assert lanes.recall([lane_id])[lane_id].key == key
    [lane] = lanes.recall([lane_id]).values()
    before = lanes._history
    lanes.note_history("another")
    lanes.remember([lane], before)
    assert lanes.recall([lane_id]) == {}
    lanes.remember([lane], "another")
    assert lanes.recall([lane_id]) == {lane_id: lane}


async def test_the_number_of_a_namespace_is_looked_up_anew_in_another_history(
    backend: PostgresBackend,
) -> None:
    await backend.enqueue_job(Job(id="one", type="t", namespace="team"))
    lanes = backend._lanes
    number = await lanes.namespace_id("team")
    history = lanes._history
    lanes._namespaces["team"] = (4711, float("inf"))
    assert await lanes.namespace_id("team") == 4711
    for another in ("another", history):
        lanes.note_history(another)
    assert await lanes.namespace_id("team") == number


async def test_the_oldest_names_are_not_remembered_for_ever(
    backend: PostgresBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known_lanes, "_MOST_REMEMBERED", 10)
    jobs = own_tags(30)
    for job in jobs:
        await backend.enqueue_job(job)
    newest = [job.tags for job in jobs[-10:]]
    assert [key[3] for key in backend._lanes._known] == newest
    assert [key[3] for key, _ in backend._lanes._keys.values()] == newest


async def test_tags_of_any_kind_name_a_lane(dsn: str, backend: PostgresBackend) -> None:
    tags = [
        frozenset(one) for one in ({'"'}, {"\\"}, {"a,b", "{}"}, {"NULL", " "}, {"\n", "é"}, ())
    ]
    jobs = [Job(id=uuid.uuid4().hex, type="t", tags=one) for one in tags]
    await backend.enqueue_jobs(jobs)
    other = await PostgresBackend.open(dsn)
    for job in jobs:
        assert (await other.get_job(job.id)).tags == job.tags
    await other.enqueue_jobs([Job(id=uuid.uuid4().hex, type="t", tags=one) for one in tags])
    assert (await left(dsn))["lane"] == len(tags)
    await other.close()


async def test_a_claim_asks_no_lane_that_was_emptied(dsn: str) -> None:
    async with watched(dsn, plans="auto") as (backend, seen):
        await _come_and_go(backend, MANY)
        await backend.enqueue_jobs([Job(id="new", type="t", tags=frozenset({"pool=a", "x"}))])
        for limit, found in [(10, ["new"]), (10, []), (10, [])]:
            seen.clear()
            assert [one.job_id for one in await claim(backend, limit)] == found
            assert seen.pages <= 600, f"{seen.pages} pages\n{seen}"


async def _come_and_go(backend: PostgresBackend, count: int) -> None:
    await backend.enqueue_jobs(own_tags(count))
    while claimed := await claim(backend, 500):
        await complete(backend, claimed)


@pytest.mark.parametrize("is_new", [False, True], ids=["same process", "new process"])
async def test_of_many_lanes_the_oldest_jobs_are_claimed(
    dsn: str, backend: PostgresBackend, is_new: bool
) -> None:
    jobs = own_tags(MANY)
    await backend.enqueue_jobs(jobs[: MANY // 2])
    await backend.enqueue_jobs(jobs[MANY // 2 :])
    urgent = own_tags(2, priority=Priority.CRITICAL)
    await backend.enqueue_jobs(urgent)
    claimer = await PostgresBackend.open(dsn) if is_new else backend
    first = [one.job_id for one in await claim(claimer, 2)]
    rest = [one.job_id for _ in range(4) for one in await claim(claimer, 500)]
    assert sorted(first) == sorted(job.id for job in urgent)
    assert set(rest[: MANY // 2]) == {job.id for job in jobs[: MANY // 2]}
    assert len(rest) == 2000
    if is_new:
        await claimer.close()


async def test_a_claim_from_many_waiting_lanes_reads_what_it_takes(dsn: str) -> None:
    async with watched(dsn, plans="auto") as (backend, seen):
        await backend.enqueue_jobs(own_tags(MANY))
        await claim(backend, 10)
        pages = []
        for _ in range(3):
            seen.clear()
            assert len(await claim(backend, 10)) == 10
            pages.append(seen.pages)
        # Two or three for each of the two hundred lanes that are asked.
        assert max(pages) <= 1500, str(seen)


async def test_a_new_process_looks_once_at_each_of_many_waiting_lanes(
    dsn: str, backend: PostgresBackend
) -> None:
    await backend.enqueue_jobs(own_tags(MANY))
    async with watched(dsn, plans="auto") as (fresh, seen):
        await fresh._arrivals.catch_up()
        seen.clear()
        assert len(await claim(fresh, 10)) == 10
        [look] = [plan for plan in seen.plans if "In which of some ranges" in plan.text]
        assert sum(one["Actual Loops"] for one in look.scans) == MANY, str(seen)
        # What arrived, the transaction's settings, all first jobs, and the claim.
        assert len(seen.plans) <= 4, str(seen)
        # Three for the first job of each lane, two of which are the index's, again for each of the
        # two hundred that are asked, and some for each of the ten that are taken.
        assert seen.pages <= 3 * (MANY + 200) + 200, str(seen)


async def test_others_have_turns_while_a_process_learns_of_many_lanes(
    dsn: str, backend: PostgresBackend
) -> None:
    await backend.enqueue_jobs(own_tags(MANY))
    learner = await PostgresBackend.open(dsn)
    known: list[int] = []

    async def take_turns() -> None:
        while True:
            known.append(len(learner._arrivals.fronts))
            await asyncio.sleep(0)

    turning = asyncio.create_task(take_turns())
    await learner._arrivals.catch_up()
    await backend.enqueue_jobs(own_tags(MANY, priority=Priority.HIGH))
    await learner._arrivals.catch_up(thorough=True)
    turning.cancel()
    await learner.close()
    steps = [after - before for before, after in pairwise(known)]
    assert sum(steps) == 2 * MANY
    assert max(steps) <= MANY // 2


async def test_what_many_lanes_stand_for_is_read_in_one_go(
    dsn: str, backend: PostgresBackend
) -> None:
    await backend.enqueue_jobs(own_tags(MANY))
    await backend._counts.fold_all()
    async with watched(dsn, plans="auto") as (other, seen):
        await other._arrivals.catch_up()
        # Not one for each lane's names: the most are those of the list of these lanes.
        assert seen.pages <= MANY + 500, str(seen)
        await backend.enqueue_jobs(own_tags(MANY, priority=Priority.HIGH))
        seen.clear()
        await other._arrivals.catch_up(thorough=True)
        assert seen.pages <= 500, str(seen)
        assert len(await claim(other, 500)) == 500


async def test_names_go_when_their_last_job_is_gone(dsn: str, backend: PostgresBackend) -> None:
    await backend.enqueue_jobs(own_tags(100))
    await tidy(backend)
    assert (await left(dsn))["lane"] == 100
    claimed = await claim(backend, 100)
    await complete(backend, claimed)
    await tidy(backend)
    # Still stored, if finished.
    assert (await left(dsn))["lane"] == 100
    assert await backend.delete_jobs([], [one.job_id for one in claimed]) == 100
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        await tidy(backend)
        # What statistics are kept of keeps its names.
        assert await left(dsn) == {"lane": 0, "job_type": 1, "namespace": 1, "lane_count": 0}
        await connection.execute("DELETE FROM queue_operator.roll_up")
        await tidy(backend)
    assert await left(dsn) == {"lane": 0, "job_type": 0, "namespace": 0, "lane_count": 0}


async def test_names_stay_that_any_lane_has(dsn: str, backend: PostgresBackend) -> None:
    """Also a type that is not the first of its namespace, and of which no statistics are kept."""
    kinds = [(space, type_) for space in ("one", "two") for type_ in ("a", "b", "c")]
    for space, type_ in kinds:
        await backend.enqueue_job(Job(id=type_, type=type_, namespace=space))
    await tidy(backend)
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        await connection.execute("DELETE FROM queue_operator.roll_up")
    await tidy(backend)
    found = await left(dsn)
    assert (found["lane"], found["job_type"], found["namespace"]) == (6, 3, 2)


async def test_names_go_though_nothing_is_logged_any_more(
    dsn: str, backend: PostgresBackend
) -> None:
    """As in a queue that rests: all was rolled up long before the lanes are retired."""
    jobs = own_tags(100)
    await backend.enqueue_jobs(jobs)
    await backend.cancel_jobs([], [job.id for job in jobs])
    await backend.delete_jobs([], [job.id for job in jobs])
    await RollUps(backend._pool).roll_up(10_000, waits=True)
    assert await RollUps(backend._pool).roll_up(10_000, waits=True) == 0
    await tidy(backend)
    assert (await left(dsn))["lane"] == 0


async def test_lanes_that_the_original_of_a_copy_retired_go(
    dsn: str, backend: PostgresBackend
) -> None:
    """By a transaction that is to come in the copy."""
    jobs = own_tags(3)
    await backend.enqueue_jobs(jobs)
    await backend.cancel_jobs([], [job.id for job in jobs])
    await backend.delete_jobs([], [job.id for job in jobs])
    async with await psycopg.AsyncConnection.connect(dsn) as connection:
        await connection.execute("UPDATE queue_operator.lane SET retired = '1000000000'")
    await tidy(backend)
    assert (await left(dsn))["lane"] == 0


async def test_what_is_used_or_was_not_rolled_up_stays(dsn: str, backend: PostgresBackend) -> None:
    jobs = own_tags(10)
    await backend.enqueue_jobs(jobs)
    await backend.cancel_jobs([], [job.id for job in jobs])
    await backend.delete_jobs([], [job.id for job in jobs])
    await backend._counts.fold_all()
    assert await backend._housekeeping.tidying.tidy() == 0
    assert (await left(dsn))["lane"] == 10
    # Retired, but its events have not been counted.
    assert await backend._housekeeping.tidying.tidy(unused_s=0.0) == 0
    assert (await left(dsn))["lane"] == 10
    other = await PostgresBackend.open(dsn)
    await other.enqueue_jobs(jobs[:3])
    # Also where the counts do not know yet that there are jobs again.
    for _ in range(2):
        await RollUps(backend._pool).roll_up(10_000, waits=True)
        await backend._housekeeping.tidying.tidy(unused_s=0.0)
        assert (await left(dsn))["lane"] == 3
    assert sorted(one.job_id for one in await claim(other, 10)) == sorted(j.id for j in jobs[:3])
    await other.close()


async def test_what_was_logged_since_a_lane_is_used_again_is_counted_before_it_goes(
    dsn: str, backend: PostgresBackend
) -> None:
    [job] = own_tags(1)
    for submits in (backend, await PostgresBackend.open(dsn)):
        await submits.enqueue_job(job)
        await submits.cancel_jobs([], [job.id])
        await submits.delete_jobs([], [job.id])
        await backend._counts.fold_all()
        # Retired, and seen by the roll-ups the first time only.
        await backend._housekeeping.tidying.tidy(unused_s=0.0)
        if submits is backend:
            await RollUps(backend._pool).roll_up(10_000, waits=True)
    await submits.close()
    await RollUps(backend._pool).roll_up(10_000, waits=True)
    assert (await backend.window_stats(StatsWindow())).submitted == 2


async def test_lanes_that_stay_keep_no_look_from_coming_round(
    dsn: str, backend: PostgresBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tidying, "_BATCH", 2)
    jobs = own_tags(5)
    await backend.enqueue_jobs(jobs)
    await tidy(backend)
    assert (await left(dsn))["lane"] == 5
    gone = [job.id for job in jobs[:3]]
    await backend.cancel_jobs([], gone)
    await backend.delete_jobs([], gone)
    await tidy(backend)
    assert (await left(dsn))["lane"] == 2


@pytest.mark.parametrize("count", [1, 3, 200], ids=["single", "few", "copied"])
async def test_who_remembers_a_lane_that_is_gone_makes_it_anew(
    dsn: str, backend: PostgresBackend, count: int
) -> None:
    jobs = own_tags(count)
    await backend.enqueue_jobs(jobs)
    await backend.cancel_jobs([], [job.id for job in jobs])
    await backend.delete_jobs([], [job.id for job in jobs])
    await tidy(backend)
    assert (await left(dsn))["lane"] == 0
    stand_still(backend)
    if count == 1:
        await backend.enqueue_job(jobs[0])
    else:
        await backend.enqueue_jobs(jobs)
    assert sorted(one.job_id for one in await claim(backend, count)) == sorted(j.id for j in jobs)
    stats = await backend.get_job_stats(["pool=a"])
    assert (stats.running_jobs, stats.total_jobs) == (count, count)


def stand_still(backend: PostgresBackend) -> None:
    """All lanes it remembers it looked up as long ago as one has to be unused before it goes."""
    past = datetime(2020, 1, 1, tzinfo=UTC)
    known = backend._lanes._known
    for key, (lane_id, look) in known.items():
        known[key] = lane_id, look._replace(sure=look.sure._replace(until=past))


async def test_a_retry_with_another_priority_comes_to_no_lane_that_is_gone(
    dsn: str, backend: PostgresBackend
) -> None:
    tags = frozenset({"pool=a"})
    await backend.enqueue_job(Job(id="urgent", type="t", tags=tags, priority=Priority.HIGH))
    await backend.cancel_jobs([], ["urgent"])
    await backend.delete_jobs([], ["urgent"])
    await backend.enqueue_job(Job(id="failed", type="t", tags=tags, max_attempts=1))
    [one] = await claim(backend, 1)
    await backend.settle([Outcome("failed", Event.FAIL, token=one.token, error=ErrorInfo("no"))])
    await tidy(backend)
    assert (await left(dsn))["lane"] == 1
    stand_still(backend)
    retry = Outcome("failed", Event.RETRY_NOW, priority=Priority.HIGH)
    assert [answer.state for answer in await backend.settle([retry])] == [JobState.FAILED_RETRY]
    assert [one.job_id for one in await claim(backend, 1)] == ["failed"]
    assert (await backend.get_job("failed")).priority is Priority.HIGH


async def test_nobody_asks_a_namespace_by_the_number_that_it_had(
    dsn: str, backend: PostgresBackend
) -> None:
    other = await PostgresBackend.open(dsn)
    await backend.enqueue_job(Job(id="old", type="t", namespace="team"))
    await backend.cancel_jobs([], ["old"], namespace="team")
    assert (await other.get_job("old", namespace="team")).state is JobState.UNSCHEDULED
    await backend.delete_jobs([], ["old"], namespace="team")
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        await tidy(backend, hidden_s=3600.0)
        await connection.execute("DELETE FROM queue_operator.roll_up")
        await tidy(backend, hidden_s=3600.0)
    # Hidden, not gone: who remembers it is right.
    assert (await left(dsn))["namespace"] == 1
    # Nobody is sure of a lane for so long.
    backend._lanes._known.clear()
    await backend.enqueue_job(Job(id="new", type="t", namespace="team"))
    assert (await other.get_job("new", namespace="team")).state is JobState.INITIAL_PENDING
    await other.close()


async def test_a_retry_goes_to_a_lane_that_is_there(backend: PostgresBackend) -> None:
    [job] = own_tags(1, max_attempts=1)
    await backend.enqueue_jobs([job])
    [one] = await claim(backend, 1)
    failure = Outcome(job.id, Event.FAIL, token=one.token, error=ErrorInfo("no"))
    await backend.settle([failure])
    again = Outcome(job.id, Event.RETRY_NOW, priority=Priority.CRITICAL)
    [settled] = await backend.settle([again])
    assert settled.error is None
    [taken] = await claim(backend, 1)
    assert (taken.job_id, taken.priority) == (job.id, Priority.CRITICAL)


TOLD = (
    "INSERT INTO queue_operator.roll_up SELECT"
    " (SELECT id FROM queue_operator.namespace), %s, begins_at,"
    " (SELECT id FROM queue_operator.job_type), 'NORMAL', 1, 0, 0, 0, 0, 0"
    " FROM ({}) AS t(begins_at)"
)
MINUTES = (
    "SELECT date_trunc('minute', now()) - make_interval(mins => n)"
    " FROM generate_series(0, %s - 1) AS n"
)


async def a_name_without_lanes(connection: psycopg.AsyncConnection[TupleRow]) -> None:
    for table in ("namespace", "job_type"):
        text = f"INSERT INTO queue_operator.{table} (name) VALUES ('once')"
        await connection.execute(text.encode())


async def in_sight(connection: psycopg.AsyncConnection[TupleRow]) -> TupleRow | None:
    """How many types, and namespaces."""
    cursor = await connection.execute(
        "SELECT (SELECT count(*) FROM queue_operator.job_type),"
        " (SELECT count(*) FROM queue_operator.namespace WHERE retired_at IS NULL)"
    )
    return await cursor.fetchone()


@pytest.mark.parametrize("plans", ["force_custom_plan", "force_generic_plan"])
async def test_what_statistics_are_kept_of_is_found_without_reading_all(
    dsn: str, plans: str
) -> None:
    """Of the minutes of three days those of an hour, and of each longer span what they make up."""
    async with (
        await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection,
        watched(dsn, plans=plans) as (backend, seen),
    ):
        await a_name_without_lanes(connection)
        await connection.execute(TOLD.format(MINUTES).encode(), (60, 4000))
        # Sums them up.
        await backend.roll_up()
        with at_most(seen, rows=4 + 24 + 60 + 30, pages=150):
            assert await backend._housekeeping.tidying._remove_names(0.0) == 0
        await connection.execute("DELETE FROM queue_operator.roll_up")
        assert await backend._housekeeping.tidying._remove_names(0.0) == 1
        assert await in_sight(connection) == (0, 0)


@pytest.mark.parametrize(
    ("span_s", "begins_at"),
    [
        (86_400, "SELECT date_bin('1 day', now(), 'epoch') - interval '399 days'"),
        # Of a day that is not over, and of an hour.
        (
            3600,
            "SELECT date_bin('1 day', closed_until, 'epoch') FROM queue_operator.roll_up_progress",
        ),
        (60, "SELECT closed_until FROM queue_operator.roll_up_progress"),
    ],
)
async def test_names_stay_whose_statistics_are_kept_in_any_span(
    dsn: str, backend: PostgresBackend, span_s: int, begins_at: str
) -> None:
    # So that hours are closed up to now.
    await backend.roll_up()
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        await a_name_without_lanes(connection)
        await connection.execute(TOLD.format(begins_at).encode(), (span_s,))
        assert await backend._housekeeping.tidying._remove_names(0.0) == 0
        assert await in_sight(connection) == (1, 1)
        await connection.execute("DELETE FROM queue_operator.roll_up")
        assert await backend._housekeeping.tidying._remove_names(0.0) == 1
        assert await in_sight(connection) == (0, 0)
