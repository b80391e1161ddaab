"""Which namespaces and types are shown by name, how many, and for how long."""

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import replace

import psycopg
import pytest
from tests.unit.metrics import exposition
from tests.unit.metrics.exposition import Samples, key

from queue_operator.backends.figures import OTHER, Naming, Pair
from queue_operator.backends.postgres import PostgresBackend
from queue_operator.domain.job import Demand, Job
from queue_operator.domain.outcome import ErrorCategory, ErrorInfo, Outcome
from queue_operator.domain.states import Event, JobState
from queue_operator.metrics.exporter import Exporter, Metrics
from queue_operator.metrics.instrumented import instrument
from queue_operator.metrics.job_counters import BUCKETS
from queue_operator.queue.clock import SystemClock
from queue_operator.settings import MetricsSettings

TYPES = 10_000
NAMESPACES = 100
BOUND = 25_000
SETTINGS = MetricsSettings(host="127.0.0.1", port=0, depth_interval_s=3600, leader_s=3600)
NAMING = Naming(max_pairs=2, max_namespaces=1, unused_s=3600.0)


@pytest.fixture
async def exporter(store: PostgresBackend) -> AsyncIterator[Exporter]:
    metrics = Metrics("names")
    figures = instrument(store.figures, metrics.recorder)
    exporter = Exporter(metrics, SETTINGS, SystemClock(), figures=figures)
    await exporter.start()
    await exporter.lead()
    yield exporter
    await exporter.stop()


async def scrape(exporter: Exporter) -> Samples:
    await exporter.refresh()
    # Series are first shown as 0.
    await asyncio.to_thread(exposition.scraped, exporter.port)
    return await asyncio.to_thread(exposition.scraped, exporter.port)


async def test_ten_thousand_types_stay_within_the_bound(
    store: PostgresBackend, exporter: Exporter
) -> None:
    """All in use, in a hundred namespaces, and each ends in another way than the next."""
    jobs = [
        Job(id=f"job-{n}", type=f"type-{n}", namespace=f"space-{n % NAMESPACES}")
        for n in range(TYPES)
    ]
    await store.enqueue_jobs(jobs)
    errors = [ErrorInfo("no", category) for category in ErrorCategory]
    endings = [
        Outcome("", Event.COMPLETE, result=b""),
        Outcome("", Event.STOP),
        Outcome("", Event.RELEASE, retry_after_s=3600.0),
        Outcome("", Event.LOSE),
        *(Outcome("", Event.FAIL, error=error, retry_after_s=3600.0) for error in errors),
    ]
    for space in range(NAMESPACES):
        namespace = f"space-{space}"
        demand = Demand(assignee_id="w", limit=TYPES, namespace=namespace)
        taken = await store.claim([demand], lease_ttl_s=600.0)
        assert len(taken) == TYPES // NAMESPACES
        answers = await store.settle(
            [
                endings[n % len(endings)]._replace(
                    job_id=one.job_id, namespace=namespace, token=one.token
                )
                for n, one in enumerate(taken)
            ]
        )
        assert not [answer.error for answer in answers if answer.error]
    found = await scrape(exporter)
    pairs = {
        (told["namespace"], told["type"])
        for (name, labels) in found
        if name == "queueoperator_jobs" and (told := dict(labels))
    }
    assert len({pair for pair in pairs if pair[1] != OTHER}) == 200
    assert len({pair for pair in pairs if pair[1] == OTHER}) == 51
    assert found[key("queueoperator_unnamed_types")] == TYPES - 200
    for name in ("jobs", "jobs_submitted_total", "job_attempts_total", "job_wait_seconds_count"):
        assert summed(found, f"queueoperator_{name}") == TYPES
    assert len(found) < BOUND


def summed(found: Samples, name: str) -> float:
    return sum(value for (each, _), value in found.items() if each == name)


async def test_an_emptied_queue_shows_nothing_at_once(
    store: PostgresBackend, exporter: Exporter
) -> None:
    await store.enqueue_jobs(
        [Job(id=f"job-{n}", type="mail", namespace="team") for n in range(500)]
    )
    labels = {"namespace": "team", "type": "mail"}
    pending = key("queueoperator_jobs", **labels, state="initial_pending")
    unscheduled = key("queueoperator_jobs", **labels, state="unscheduled")
    age = key("queueoperator_oldest_runnable_job_age_seconds", **labels)
    full = await scrape(exporter)
    assert (full[pending], full[unscheduled]) == (500, 0)
    assert full[age] > 0
    await store.cancel_jobs([], [f"job-{n}" for n in range(500)], namespace="team")
    cancelled = await scrape(exporter)
    assert (cancelled[pending], cancelled[unscheduled], cancelled[age]) == (0, 500, 0)
    finished = key("queueoperator_jobs_finished_total", **labels, state="unscheduled")
    assert cancelled[finished] == 500
    await store.delete_jobs([], [f"job-{n}" for n in range(500)], namespace="team")
    deleted = await scrape(exporter)
    assert (deleted[pending], deleted[unscheduled], deleted[finished]) == (0, 0, 500)


async def test_another_process_goes_on_and_counters_do_not_jump(
    store: PostgresBackend, exporter: Exporter
) -> None:
    await store.enqueue_job(Job(id="one", type="mail", namespace="team"))
    submitted = key("queueoperator_jobs_submitted_total", namespace="team", type="mail")
    assert (await scrape(exporter))[submitted] == 1
    await exporter.stop()
    await store.enqueue_job(Job(id="two", type="mail", namespace="team"))
    metrics = Metrics("next")
    following = Exporter(metrics, SETTINGS, SystemClock(), figures=store.figures)
    await following.start()
    try:
        await following.lead()
        await following.refresh()
        first, second = [
            (await asyncio.to_thread(exposition.scraped, following.port))[submitted]
            for _ in range(2)
        ]
    finally:
        await following.stop()
    assert (first, second) == (0, 1)


async def counted(store: PostgresBackend, naming: Naming = NAMING) -> dict[Pair, int]:
    await store.figures.lead("us", 600.0)
    return dict((await store.figures.count("us", naming, BUCKETS)).submitted)


async def submit(store: PostgresBackend, *pairs: Pair) -> None:
    for namespace, kind in pairs:
        job = Job(id=f"{kind}-{time.monotonic_ns()}", type=kind, namespace=namespace)
        await store.enqueue_job(job)


async def test_names_are_the_same_for_all_and_come_with_use(store: PostgresBackend) -> None:
    await submit(store, ("a", "x"), ("a", "x"), ("a", "y"), ("b", "y"), ("b", "y"))
    await submit(store, ("c", "z"))
    # The largest have names, one more namespace has its own sum.
    assert await counted(store) == {
        ("a", "x"): 2,
        ("b", "y"): 2,
        ("a", OTHER): 1,
        (OTHER, OTHER): 1,
    }
    await submit(store, ("a", "y"), ("c", "z"))
    assert await counted(store) == {("a", OTHER): 1, (OTHER, OTHER): 1}
    stock = await store.figures.stock(NAMING)
    assert stock.names == {("a", "x"), ("b", "y"), ("a", OTHER)}
    assert stock.unnamed == 2
    pending = JobState.INITIAL_PENDING
    assert stock.jobs == {
        ("a", "x", pending): 2,
        ("b", "y", pending): 2,
        ("a", OTHER, pending): 2,
        (OTHER, OTHER, pending): 2,
    }
    assert set(stock.oldest_age_s) == {("a", "x"), ("b", "y"), ("a", OTHER), (OTHER, OTHER)}


async def test_a_type_may_be_called_as_the_sum_of_the_others_is(store: PostgresBackend) -> None:
    few = replace(NAMING, max_pairs=1)
    await submit(store, ("a", OTHER), ("a", OTHER), ("a", "x"))
    stock = await store.figures.stock(few)
    assert stock.jobs == {("a", OTHER, JobState.INITIAL_PENDING): 3}
    assert await counted(store, few) == {("a", OTHER): 3}


async def test_a_name_that_nobody_uses_is_given_to_another(
    store: PostgresBackend, database: str
) -> None:
    few = replace(NAMING, max_pairs=1, max_namespaces=0)
    await submit(store, ("a", "x"), ("b", "y"))
    await store.figures.stock(few)
    ids = [job.id for job in await store.dequeue_jobs("w", [], 9, namespace="a")]
    assert len(ids) == 1
    await store.complete_job(ids[0], b"", namespace="a")
    assert (await store.figures.stock(few)).names == {("a", "x")}
    await store.delete_jobs([], ids, namespace="a")
    # It would be forgotten later, and then another is named.
    with psycopg.connect(database) as connection:
        connection.execute(
            "UPDATE queue_operator.figure_name SET used_at = used_at - interval '2 hours'"
        )
    figures = PostgresBackend.open(database)
    other = await figures
    try:
        assert (await other.figures.stock(few)).names == {("b", "y")}
    finally:
        await other.close()


async def test_a_name_in_use_is_kept(store: PostgresBackend, database: str) -> None:
    await submit(store, ("a", "x"))
    await store.figures.stock(NAMING)
    with psycopg.connect(database) as connection:
        connection.execute(
            "UPDATE queue_operator.figure_name SET used_at = used_at - interval '50 minutes'"
        )
    await store.figures.stock(NAMING)
    with psycopg.connect(database) as connection:
        [(age_s,)] = connection.execute(
            "SELECT extract(epoch FROM now() - used_at) FROM queue_operator.figure_name"
        ).fetchall()
    assert age_s < 600
