"""Time is the database's: neither the clock, nor the zone, nor the settings of a process matter."""

import asyncio
import json
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

import psycopg
import pytest
from psycopg import sql
from tests.contract.store import PostgresStore
from tests.integration.postgres.processes import running
from tests.programs import finish

from queue_operator.backends.postgres import PostgresBackend
from queue_operator.backends.protocol import JobSearch, SearchOrder
from queue_operator.domain.job import Demand, Job, ResourceRef
from queue_operator.domain.ordering import Priority
from queue_operator.domain.states import JobState

HOUR_S = 3600.0
NEW_YORK = ZoneInfo("America/New_York")
# The hour that New York had twice, first in summer time; the one that it never had; and far away.
INSTANTS = [
    datetime(2026, 11, 1, 1, 30, tzinfo=NEW_YORK),
    datetime(2026, 11, 1, 1, 30, tzinfo=NEW_YORK, fold=1),
    datetime(2026, 3, 8, 2, 30, tzinfo=NEW_YORK),
    datetime(2026, 7, 1, 12, 0, 0, 123456, tzinfo=timezone(timedelta(hours=5, minutes=30))),
    datetime(2026, 7, 1, 12, 0, tzinfo=timezone(timedelta(hours=-11))),
    datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    datetime(9998, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    datetime(2, 1, 1, tzinfo=UTC),
]
# All that a process can read of the time of day is hours off, before anything is imported.
SHIFTED = """
import datetime as module, time

SHIFT_S = float(sys.argv[2])
true_time, true_datetime = time.time, module.datetime

class Shifted(true_datetime):
    @classmethod
    def now(cls, tz=None):
        return true_datetime.now(tz) + module.timedelta(seconds=SHIFT_S)

    @classmethod
    def utcnow(cls):
        return true_datetime.utcnow() + module.timedelta(seconds=SHIFT_S)

time.time = lambda: true_time() + SHIFT_S
module.datetime = Shifted

from queue_operator.backends.postgres import PostgresBackend
from queue_operator.domain.job import Demand, Job

async def main():
    assert abs(time.time() - true_time() - SHIFT_S) < 60
    assert abs((module.datetime.now() - true_datetime.now()).total_seconds() - SHIFT_S) < 60
    backend = await PostgresBackend.open(DSN)
    await backend.enqueue_jobs([
        Job(id="fresh", type="fresh"),
        Job(id="delayed", type="delayed", delay_s=3600),
    ])
    said = {}
    said["staged"] = await backend._staging.stage()
    demand = Demand(assignee_id="off", limit=9)
    said["claimed"] = [one.job_id for one in await backend.claim([demand], lease_ttl_s=60)]
    said["lost"] = []
    for _ in range(2):
        lost = await backend.expire_leases(lease_ttl_s=60)
        said["lost"] += sorted(one.job_id for one in lost)
        said["staged"] += await backend._staging.stage()
    fresh = await backend.get_job("fresh")
    said["fresh"] = [fresh.created_at.isoformat(), fresh.assigned_at.isoformat()]
    await backend.close()
    say(json.dumps(said))

asyncio.run(main())
"""


async def off_by(store: PostgresStore, hours: float, zone: str = "UTC") -> dict[str, Any]:
    """What a process does whose clock is so many hours off."""
    async with running(store.dsn, str(hours * HOUR_S), script=SHIFTED, TZ=zone) as process:
        said: dict[str, Any] = json.loads(await finish(process))
        return said


async def claimed(backend: PostgresBackend, *ids: str, ttl_s: float = 60.0) -> None:
    await backend.enqueue_jobs([Job(id=job_id, type=job_id) for job_id in ids])
    demand = Demand(assignee_id="on time", limit=9, types=frozenset(ids))
    assert len(await backend.claim([demand], lease_ttl_s=ttl_s)) == len(ids)


# Clocks that are off


@pytest.mark.parametrize(
    ("hours", "zone"), [(7.0, "Asia/Kolkata"), (-7.0, "America/New_York"), (24_000.0, "UTC")]
)
async def test_a_process_whose_clock_is_off_is_neither_early_nor_late(
    store: PostgresStore, hours: float, zone: str
) -> None:
    backend = await store.open()
    await claimed(backend, "held")
    await backend.enqueue_job(Job(id="due", type="due", delay_s=0.001))
    before = datetime.now(UTC)
    said = await off_by(store, hours, zone)
    # It takes what is due by the database's clock, and that alone.
    assert said["claimed"] == ["due", "fresh"]
    assert said["lost"] == []
    assert (await backend.get_job("delayed")).state is JobState.INITIAL_PENDING
    # What it stored and took bears the database's time, which is this machine's.
    for text in said["fresh"]:
        assert before <= datetime.fromisoformat(text) <= datetime.now(UTC)
    for batch in await backend.read_events():
        assert all(wait_us >= 0 for wait_us in batch.wait_us or ())


@pytest.mark.parametrize("hours", [7.0, -7.0])
async def test_a_process_whose_clock_is_off_takes_back_what_really_ran_out(
    store: PostgresStore, hours: float
) -> None:
    backend = await store.open()
    await claimed(backend, "dead", ttl_s=60.0)
    await claimed(backend, "alive", ttl_s=600.0)
    assert await backend.expire_leases(lease_ttl_s=60) == []
    await store.age(120)
    assert (await off_by(store, hours))["lost"] == ["dead"]


async def test_many_that_disagree_share_the_work_once(store: PostgresStore) -> None:
    """Each job is taken by one, whatever each of them takes the time to be."""
    backend = await store.open()
    await backend.enqueue_jobs([Job(id=f"job-{n}", type="t") for n in range(24)])
    async with AsyncExitStack() as stack:
        processes = [
            await stack.enter_async_context(
                running(store.dsn, str(hours * HOUR_S), script=CLAIMING)
            )
            for hours in (-5, 0, 5)
        ]
        shares = await asyncio.gather(*(finish(process) for process in processes))
    taken = [job_id for share in shares for job_id in json.loads(share)]
    assert sorted(taken) == sorted(f"job-{n}" for n in range(24))


CLAIMING = (
    SHIFTED.partition("async def main")[0]
    + """
async def main():
    backend = await PostgresBackend.open(DSN)
    taken = []
    while batch := await backend.claim([Demand(assignee_id=ME, limit=3)], lease_ttl_s=600):
        taken += [one.job_id for one in batch]
        assert await backend.expire_leases(lease_ttl_s=600) == []
    await backend.close()
    say(json.dumps(taken))

asyncio.run(main())
"""
)


# Zones


async def stored(backend: PostgresBackend, jobs: list[Job], way: str) -> None:
    match way:
        case "one by one":
            await asyncio.gather(*(backend.enqueue_job(job) for job in jobs))
        case "batch":
            await backend.enqueue_jobs(jobs)
        case "copied":
            # Many enough; the copy takes plain jobs only.
            await backend.enqueue_jobs([*jobs, *(Job(id=f"x-{n}", type="x") for n in range(500))])
        case "resources":
            await backend.take_in(
                [replace(job, resource=ResourceRef("cluster", job.id, job.id)) for job in jobs]
            )


@pytest.mark.parametrize("way", ["one by one", "batch", "copied", "resources"])
@pytest.mark.parametrize("zone", ["UTC", "Asia/Kolkata", "America/New_York"])
async def test_an_instant_keeps_its_place_whatever_its_zone_and_the_server_s(
    store: PostgresStore, way: str, zone: str
) -> None:
    await set_zone(store, zone)
    backend = await store.open()
    jobs = [Job(id=f"at-{n}", type="t", created_at=at) for n, at in enumerate(INSTANTS)]
    jobs += [Job(id=f"for-{n}", type="t", scheduled_at=at) for n, at in enumerate(INSTANTS)]
    await stored(backend, jobs, way)
    for n, at in enumerate(INSTANTS):
        created = (await backend.get_job(f"at-{n}")).created_at
        assert created is not None
        # Compared in UTC: Python takes equal wall times of one zone for equal instants.
        assert (created.utcoffset(), created) == (timedelta(0), at.astimezone(UTC))
        scheduled = (await backend.get_job(f"for-{n}")).eligible_at
        assert scheduled is not None
        assert scheduled.utcoffset() == timedelta(0)
        if at.astimezone(UTC) > datetime.now(UTC):
            assert scheduled == at.astimezone(UTC)


async def set_zone(store: PostgresStore, zone: str) -> None:
    """For every session that starts from now on."""
    await store.admin.execute(
        sql.SQL("ALTER DATABASE {} SET timezone = {}").format(
            sql.Identifier(store.admin.info.dbname), sql.Literal(zone)
        )
    )


@pytest.mark.parametrize("zone", [NEW_YORK, timezone(timedelta(hours=14)), UTC])
async def test_bounds_of_a_search_are_instants(store: PostgresStore, zone: tzinfo) -> None:
    await set_zone(store, "Asia/Kolkata")
    backend = await store.open()
    # Two hours around the end of summer time: the wall clock shows half past one twice.
    start = datetime(2026, 11, 1, 5, 0, tzinfo=UTC)
    times = [start + timedelta(minutes=30 * n) for n in range(5)]
    await backend.enqueue_jobs(
        [Job(id=str(n), type="t", created_at=at) for n, at in enumerate(times)]
    )
    page = await backend.search_jobs(
        JobSearch(
            created_after=times[1].astimezone(zone),
            created_before=times[4].astimezone(zone),
            order=SearchOrder.CREATED_ASC,
        )
    )
    assert [job.id for job in page.jobs] == ["2", "3"]


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
async def test_a_delay_of_a_day_is_86400_seconds(store: PostgresStore, zone: str) -> None:
    """Also over the change of clocks: a year of such days is tried."""
    await set_zone(store, zone)
    backend = await store.open()
    delays = [n * 24 * HOUR_S for n in range(1, 366)]
    await backend.enqueue_jobs(
        [Job(id=str(n), type="t", delay_s=delay_s) for n, delay_s in enumerate(delays)]
    )
    jobs = await backend._get("default", [str(n) for n in range(len(delays))])
    for n, delay_s in enumerate(delays):
        job = jobs[str(n)]
        assert job.eligible_at is not None
        assert job.created_at is not None
        assert (job.eligible_at - job.created_at).total_seconds() == delay_s


# Times that nobody could read


BEYOND = ["infinity", "-infinity", "9999-12-31 00:00+00", "0001-01-01 00:00+00", "4000-01-01 BC"]
PLACES = {
    "job": ("created_at",),
    "ready": ("created_at", "eligible_at", "order_time"),
    "lease": ("created_at", "eligible_at", "order_time"),
    "progress": ("at",),
    "final": ("created_at", "eligible_at", "order_time"),
}


@pytest.mark.parametrize("at", BEYOND)
async def test_no_hand_can_store_a_time_that_nobody_could_read(
    store: PostgresStore, at: str
) -> None:
    """One such row would break every claim and every search that meets it."""
    backend = await store.open()
    await claimed(backend, "held", "done")
    await backend.complete_job("done", b"")
    await backend.enqueue_job(Job(id="waits", type="waits"))
    await store.admin.execute("INSERT INTO progress VALUES (1, now(), 1, '')")
    for table, names in PLACES.items():
        for name in names:
            with pytest.raises(psycopg.errors.CheckViolation, match=name):
                await store.admin.execute(
                    sql.SQL("UPDATE {} SET {} = {}").format(
                        sql.Identifier(table), sql.Identifier(name), sql.Literal(at)
                    )
                )
    insert = "INSERT INTO ready (job_no, lane_id, order_time, created_at, due, eligible_at) VALUES"
    for values in ("(1, 1, %s, now(), true, now())", "(1, 1, now(), %s, true, now())"):
        with pytest.raises(psycopg.errors.CheckViolation):
            await store.admin.execute(f"{insert} {values}", (at,))
    assert [job.id for job in await backend.dequeue_jobs("w", [], 9)] == ["waits"]


async def test_the_first_and_the_last_time_that_a_caller_may_give_are_stored(
    store: PostgresStore,
) -> None:
    """With every priority, which moves the place in the order by up to a day."""
    backend = await store.open()
    ends = [datetime(2, 1, 1, tzinfo=UTC), datetime(9998, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)]
    jobs = [
        Job(id=f"{priority}-{at.year}", type="t", created_at=at, priority=priority)
        for priority in Priority
        for at in ends
    ]
    await backend.enqueue_jobs(jobs)
    taken = await backend.dequeue_jobs("w", [], 99)
    assert {job.id for job in taken} == {job.id for job in jobs}
