"""Calls of every kind, on jobs as `million.py` makes them."""

import itertools
import uuid
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import LiteralString

import psycopg
from tests.integration.postgres import million
from tests.integration.postgres.big import WORKER, ids, new_jobs, outcome, take

from queue_operator.backends.figures import Buckets, Naming
from queue_operator.backends.owners import Owners
from queue_operator.backends.postgres import PostgresBackend
from queue_operator.backends.postgres.arrivals import adopt
from queue_operator.backends.postgres.connection import borrowed
from queue_operator.backends.postgres.counts import OfLane, forget
from queue_operator.backends.protocol import (
    CheckpointReport,
    LogLine,
    LogReport,
    Pause,
    ProgressReport,
    SpawnRequest,
    StatsWindow,
)
from queue_operator.backends.sql import render
from queue_operator.backends.watching import SeriesWindow
from queue_operator.domain.dependencies import DependencyMode
from queue_operator.domain.errors import JobNotFound
from queue_operator.domain.job import Demand, Job, Progress, ResourceRef
from queue_operator.domain.lease import Held, LeaseStatus
from queue_operator.domain.log_cursor import LogCursor
from queue_operator.domain.ordering import Priority
from queue_operator.domain.outcome import ErrorInfo, Outcome
from queue_operator.domain.states import Event

NAMING = Naming(max_pairs=5, max_namespaces=1, unused_s=3600.0)
BUCKETS = Buckets(wait=(0.1, 1.0), run=(0.1, 1.0))

_OLDEST = render(
    "SELECT extract(epoch FROM now() - min(finalized_at))::float8"
    " FROM queue_operator.final WHERE state IN ({{COMPLETED}})"
)
_REOPEN: LiteralString = (
    "UPDATE queue_operator.roll_up_progress SET xid = pg_current_xact_id(),"
    " closed_until = date_trunc('day', now()) - interval '2 days'"
)
# What was retried once cannot be retried again.
_NEXT = itertools.count()

Call = Callable[[PostgresBackend], Awaitable[object]]


async def get_ended_and_waiting(backend: PostgresBackend) -> None:
    for job_id in ids(400_000, 3) + ids(900_000, 3) + ids(802_000, 3):
        with suppress(JobNotFound):
            await backend.get_job(job_id, namespace=million.BIG)


async def places(backend: PostgresBackend) -> None:
    for job_id in ids(400_000, 2) + ids(900_000, 2) + ids(802_000, 2):
        with suppress(JobNotFound):
            await backend.place_of(job_id, namespace=million.BIG)


async def pause_and_go_on(backend: PostgresBackend) -> None:
    await backend.pause(Pause(namespace=million.BIG, type="type-1", reason="to see"))
    assert len(await backend.pauses(million.BIG)) == 1
    await take(backend, million.BIG, 20)
    await backend.resume(million.BIG, "type-1")


async def suspend_and_go_on(backend: PostgresBackend) -> None:
    """What waits, is delayed, runs and has ended; and children of a running job."""
    await backend.enqueue_jobs(new_jobs(2, suspended=True))
    names = [*ids(900_000, 5), *ids(802_000, 5), *ids(700_000, 5), *ids(400_000, 5)]
    for on in (True, False):
        await backend.set_suspended({(million.BIG, name): on for name in names})
    # A suspended job that is tried again looks at its note.
    held = await take(backend, million.BIG, 20)
    await backend.set_suspended({(one.namespace, one.job_id): True for one in held})
    await backend.settle([outcome(one, Event.RELEASE) for one in held])
    await backend.set_suspended({(one.namespace, one.job_id): False for one in held})


async def histories(backend: PostgresBackend) -> None:
    for job_id in ids(400_000, 5) + ids(900_000, 5):
        with suppress(JobNotFound):
            await backend.get_history(job_id, namespace=million.BIG)


async def submit(backend: PostgresBackend) -> None:
    await backend.enqueue_jobs(new_jobs(100))
    await backend.enqueue_jobs(new_jobs(2, callback_url="https://example.com"))
    await backend.enqueue_jobs(new_jobs(1))


async def submit_with_key(backend: PostgresBackend) -> None:
    jobs = [replace(job, idempotency_key=job.id) for job in new_jobs(20)]
    await backend.enqueue_jobs(jobs)
    await backend.enqueue_jobs([replace(job, id=uuid.uuid4().hex) for job in jobs])


async def new_names(backend: PostgresBackend) -> None:
    await backend.enqueue_job(Job(id=uuid.uuid4().hex, type=uuid.uuid4().hex, namespace="new"))


async def begin_anew(backend: PostgresBackend) -> None:
    await adopt(backend._pool)
    backend._arrivals.lose()
    await backend._arrivals.catch_up()


async def look_for_overlooked(backend: PostgresBackend) -> None:
    """Nobody has told of any job."""
    backend._arrivals.fronts.clear()
    # Nor is it remembered what their lanes stand for.
    backend._lanes.note_history("another")
    await backend._housekeeping.overlooked.look()
    backend._arrivals.lose()


async def forget_arrivals(backend: PostgresBackend) -> None:
    """As after ten minutes."""
    arrivals = backend._arrivals
    await arrivals.catch_up(thorough=True)
    last = arrivals._read
    assert last is not None
    arrivals._past._reads = [last._replace(at=last.at.replace(year=last.at.year - 1))]
    await arrivals.prune()


async def claim_for_several(backend: PostgresBackend) -> None:
    """For three groups at once, no lane of which is another's."""
    demands = [
        Demand(assignee_id=f"w{n}", limit=20, namespace=million.BIG, types=frozenset({f"type-{n}"}))
        for n in range(1, 4)
    ]
    await backend.claim(demands, lease_ttl_s=600)


async def run_a_chain(backend: PostgresBackend) -> None:
    """Ten parents with two children each; the parents complete, then the children run."""
    parents = new_jobs(10, tags=frozenset({"chain"}))
    children = [
        replace(job, depends_on=(parents[n // 2].id,), dependency_mode=DependencyMode.CHAIN)
        for n, job in enumerate(new_jobs(20, tags=frozenset({"chain"})))
    ]
    await backend.enqueue_jobs([*parents, *children])
    demand = Demand(assignee_id="w", limit=10, namespace=million.BIG, tags=frozenset({"chain"}))
    for _ in range(3):
        claimed = await backend.claim([demand], lease_ttl_s=600)
        await backend.settle(
            [outcome(Held(a.job_id, a.token, a.namespace), Event.COMPLETE) for a in claimed]
        )


async def mirror(backend: PostgresBackend) -> None:
    jobs = [
        replace(job, resource=ResourceRef("cluster", job.id, f"job-{n}"))
        for n, job in enumerate(new_jobs(10))
    ]
    await backend.take_in(jobs)
    await backend.taken_in([job.id for job in jobs])
    pending = await backend.pending_mirrors()
    await backend.acknowledge_mirrors([entry.sequence for entry in pending])
    await backend.attached("cluster")
    await backend.detach([job.id for job in jobs])


async def look_at_statuses(backend: PostgresBackend) -> None:
    """Of jobs that wait, run and have ended."""
    jobs = [replace(job, max_attempts=1) for job in new_jobs(15)]
    await backend.enqueue_jobs(jobs)
    held = await take(backend, million.BIG, 10)
    await backend.settle([outcome(h, Event.COMPLETE) for h in held[:5]])
    names = {job.id for job in jobs} | {h.job_id for h in held}
    shown = await backend.shown_jobs([(million.BIG, name) for name in names])
    assert len(shown) == len(names)
    await backend.settle([outcome(h, Event.COMPLETE) for h in held[5:]])


async def give_another_priority(backend: PostgresBackend) -> None:
    jobs = new_jobs(10)
    await backend.enqueue_jobs(jobs)
    await backend.set_priorities({(job.namespace, job.id): Priority.CRITICAL for job in jobs})
    assert (await backend.get_job(jobs[0].id, namespace=million.BIG)).priority is Priority.CRITICAL


async def cancel_running(backend: PostgresBackend) -> None:
    held = await take(backend, million.SOLO, 10)
    if held:
        await backend.cancel_jobs([], [h.job_id for h in held], namespace=million.SOLO)
    await backend.pending_cancels([WORKER])
    await backend.confirm_cancels(held)
    await backend.settle([outcome(h, Event.ACK_EXECUTING) for h in held])


async def what_assignees_have(backend: PostgresBackend) -> None:
    held = await take(backend, million.SOLO, 10)
    assert len(await backend.leased([WORKER])) >= len(held)


async def complete_late(backend: PostgresBackend) -> None:
    """Their worker is given up, half of them while being cancelled; then its outcomes come."""
    worker = uuid.uuid4().hex
    demand = Demand(assignee_id=worker, limit=10, namespace=million.SOLO)
    claimed = await backend.claim([demand], lease_ttl_s=600)
    if claimed:
        half = [a.job_id for a in claimed[::2]]
        await backend.cancel_jobs([], half, namespace=million.SOLO)
    await backend.mark_worker_unresponsive(worker)
    await backend.settle(
        [outcome(Held(a.job_id, a.token, a.namespace), Event.COMPLETE) for a in claimed]
    )


async def retry_more_urgently(backend: PostgresBackend) -> None:
    first = 300_088 + 1000 * next(_NEXT)
    dead = [f"job-{first + 100 * n:08d}" for n in range(10)]
    await backend.settle(
        [
            Outcome(job_id, Event.RETRY_NOW, namespace=million.BIG, priority=Priority.HIGH)
            for job_id in dead
        ]
    )


async def checkpoint_and_claim_again(backend: PostgresBackend) -> None:
    held = await take(backend, million.BIG, 20)
    for number in (1, 2):
        await backend.store_checkpoints(
            [
                CheckpointReport(
                    job_id=h.job_id, token=h.token, namespace=h.namespace, number=number, data=b"x"
                )
                for h in held
            ]
        )
    # A lost job keeps its place, so these are the next to be claimed.
    await backend.settle([outcome(h, Event.LOSE) for h in held])
    again = await take(backend, million.BIG, 20)
    await backend.settle([outcome(h, Event.COMPLETE) for h in again])


async def spawn_twice(backend: PostgresBackend) -> None:
    held = await take(backend, million.BIG, 20)
    children = [
        SpawnRequest(parent_id=h.job_id, token=h.token, namespace=h.namespace, key="1", job=job)
        for h, job in zip(held, new_jobs(len(held)), strict=True)
    ]
    for _ in range(2):
        await backend.spawn(children)
    await backend.settle([outcome(h, Event.COMPLETE) for h in held])


async def log(backend: PostgresBackend) -> None:
    held = await take(backend, million.BIG, 20)
    for number in (1, 2):
        line = LogLine(number=number, at=datetime.now(UTC), level="INFO", message="hello")
        reports = [
            LogReport(job_id=h.job_id, token=h.token, namespace=h.namespace, lines=(line,))
            for h in held
        ]
        await backend.append_logs(reports)
        await backend.settle([outcome(h, Event.COMPLETE) for h in held])
    for h in held:
        [found] = await backend.job_log(h.job_id, namespace=h.namespace)
        read = LogCursor().after([found])
        assert await backend.job_log(h.job_id, namespace=h.namespace, after=read) == []


async def report_progress(backend: PostgresBackend) -> None:
    progress = Progress(50, "half", datetime.now(UTC))
    await backend.record_progress(
        [
            ProgressReport(job_id=h.job_id, token=h.token, namespace=h.namespace, progress=progress)
            for h in await take(backend, million.SOLO, 10)
        ]
    )


async def complete(backend: PostgresBackend) -> None:
    held = await take(backend, million.SOLO, 50)
    await backend.settle([outcome(h, Event.COMPLETE) for h in held])


async def fail(backend: PostgresBackend) -> None:
    held = await take(backend, million.SOLO, 50)
    await backend.settle([outcome(h, Event.FAIL, ErrorInfo("no route")) for h in held])


async def renew(backend: PostgresBackend) -> None:
    held = await take(backend, million.SOLO, 50)
    stale = [replace(h, token=str(uuid.uuid4())) for h in held[:5]]
    await backend.extend_leases([*held[5:], *stale], lease_ttl_s=60)


async def renew_elsewhere(backend: PostgresBackend) -> None:
    """Sessions name jobs of which this process does not know to whom they were given."""
    held = await take(backend, million.BIG, 50)
    backend._owners = Owners(backend._owners_of)
    ours = [replace(h, assignee_id=WORKER) for h in held[5:]]
    foreign = [replace(h, assignee_id="another") for h in held[:5]]
    answers = await backend.extend_leases([*ours, *foreign], lease_ttl_s=60)
    current = sum(answer.status is LeaseStatus.CURRENT for answer in answers)
    assert current == len(ours)
    await backend.settle([outcome(h, Event.COMPLETE) for h in held])
    late = [outcome(h, Event.COMPLETE)._replace(assignee_id=WORKER) for h in held]
    backend._owners = Owners(backend._owners_of)
    assert all(answer.repeated for answer in await backend.settle(late))


async def sweep(backend: PostgresBackend) -> None:
    """Leases that have run out, one more than may be, or were renewed, and lost jobs without an
    attempt left.
    """
    await backend.enqueue_jobs(
        [replace(job, max_attempts=1, namespace="swept") for job in new_jobs(15)]
    )
    held = await take(backend, "swept", 15)
    renewed, lost = held[6:10], held[10:]
    await backend.extend_leases(held, lease_ttl_s=0.000001)
    await backend.extend_leases(renewed, lease_ttl_s=3600)
    await backend.settle([outcome(h, Event.LOSE) for h in lost])
    # Of that another case tells the cost.
    backend._housekeeping.overlooked._look_at_s = float("inf")
    # So long that it is not taken for the first one after an outage.
    assert len(await backend.expire_leases(lease_ttl_s=3600, limit=5)) == 5
    await backend._housekeeping.settled()
    await backend.settle([outcome(h, Event.COMPLETE) for h in held[:10]])


async def clean_up(backend: PostgresBackend) -> None:
    """Deletes some 200 jobs: each is two seconds older than the next."""
    # Not over the backend's own connection, whose plans are watched.
    async with await psycopg.AsyncConnection.connect(str(backend._pool.conninfo)) as connection:
        cursor = await connection.execute(_OLDEST)
        [age_s] = await cursor.fetchone() or [None]
    await backend.cleanup_expired_jobs(max((age_s or 0) - 400, 3600))


async def nothing(backend: PostgresBackend) -> None:
    pass


async def roll_up(backend: PostgresBackend) -> None:
    """In the middle of other things, with hours that are over, and with something old to forget."""
    await backend.enqueue_jobs(new_jobs(3))
    await take(backend, million.BIG, 3)
    async with await psycopg.AsyncConnection.connect(str(backend._pool.conninfo)) as connection:
        await connection.execute(_REOPEN)
    backend._roll_ups._prune_at_s = 0.0
    await backend.roll_up()


async def follow(backend: PostgresBackend) -> None:
    """Of what happened since a moment all that is of one namespace."""
    log, jobs = backend.followed, new_jobs(50)
    mark = await log.mark()
    await backend.enqueue_jobs(jobs)
    looked = await log.look([(job.namespace, job.id) for job in jobs])
    numbers = [one.number for one in looked.jobs.values()]
    step = await log.step(mark.horizon, None, mark.above_seq, lambda kind: False, numbers, 1000)
    assert len(step.events) == len(jobs)


async def figures(backend: PostgresBackend) -> None:
    """What the metrics tell of jobs, but for what happened to them."""
    await backend.figures.lead("us", 600.0)
    await backend.figures.stock(NAMING)
    await backend.figures.names()


async def count_figures(backend: PostgresBackend) -> None:
    await backend.figures.lead("us", 600.0)
    await backend.enqueue_jobs(new_jobs(3))
    held = await take(backend, million.BIG, 3)
    await backend.settle([outcome(one, Event.COMPLETE) for one in held])
    await backend.figures.count("us", NAMING, BUCKETS)
    await backend.figures.lag_s()


async def forget_a_lane(backend: PostgresBackend) -> None:
    """Whose only job is deleted."""
    [job] = jobs = new_jobs(1, tags=frozenset({uuid.uuid4().hex}))
    await backend.enqueue_jobs(jobs)
    await backend.cancel_jobs([], [job.id], namespace=million.BIG)
    await backend.delete_jobs([], [job.id], namespace=million.BIG)
    await backend._counts.fold_all()
    [lane_id] = (await backend._lanes.of_jobs(jobs)).ids
    async with borrowed(backend._pool) as connection:
        assert await forget(connection, [OfLane(lane_id, 1, 1, "NORMAL")]) == 1


async def forget_a_type(backend: PostgresBackend) -> None:
    """That never had a lane."""
    async with borrowed(backend._pool) as connection:
        await connection.execute("INSERT INTO job_type (name) VALUES (%s)", [uuid.uuid4().hex])
    assert await backend._housekeeping.tidying._remove_names(600.0) >= 1


async def window(backend: PostgresBackend) -> None:
    for range_s in (3600.0, 20 * 86_400.0):
        await backend.window_stats(StatsWindow(namespace=million.BIG, time_range_s=range_s))


async def series(backend: PostgresBackend) -> None:
    for range_s in (3600.0, 20 * 86_400.0):
        await backend.stats_series(SeriesWindow(namespace=million.BIG, time_range_s=range_s))


async def quotas(backend: PostgresBackend) -> None:
    await backend.usage_of([million.BIG, million.SOLO, "nobody"])
    for _ in range(2):
        await backend.take_tokens("bucket", 1.0, rate_per_s=1.0, burst=1.0)
    await backend.return_tokens("bucket", 1.0, rate_per_s=1.0, burst=1.0)
    await backend.taken_keys([(million.BIG, f"nobody's {n}") for n in range(100)])
