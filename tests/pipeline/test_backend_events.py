"""The events that the Postgres backend really writes go through the whole pipeline."""

import asyncio

import pytest
from tests.pipeline.stage import Stage

from queue_operator.backends.postgres import PostgresBackend
from queue_operator.domain.job import Job
from queue_operator.domain.ordering import Priority
from queue_operator.domain.states import JobState

# PySpark leaves the socket open over which it fetched a result.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")


async def work(dsn: str) -> None:
    """Six jobs of two types in two namespaces: four succeed, one fails, one waits on."""
    backend = await PostgresBackend.open(dsn)
    try:
        mail = [
            Job(id=f"mail-{n}", type="mail", tags=frozenset("ba"), correlation_id=f"c{n}")
            for n in range(3)
        ]
        report = [Job(id=f"report-{n}", type="report", namespace="other") for n in range(2)]
        await backend.enqueue_jobs([mail[0], *report, *mail[1:]])
        await backend.enqueue_job(Job(id="late", type="mail", priority=Priority.BULK, delay_s=3600))
        for namespace in ("default", "other"):
            for job in await backend.dequeue_jobs("worker-1", (), 10, namespace=namespace):
                if job.id == "mail-0":
                    await backend.fail_job(job.id, "no route", namespace=namespace)
                else:
                    await backend.complete_job(job.id, b"", namespace=namespace)
    finally:
        await backend.close()


def test_jobs_through_the_backend_are_counted(stage: Stage) -> None:
    asyncio.run(work(stage.dsn))
    report = stage.run()
    assert report.bronze_rows == 6 + 5 + 5
    rows = stage.query(
        "SELECT namespace, type, state, sum(transitions)::int AS jobs,"
        " bool_and(queue_latency_p50_us >= 0) AS waited, bool_and(execution_p50_us >= 0) AS ran"
        " FROM queue_operator.rollup_hour GROUP BY 1, 2, 3"
    )
    found = {tuple(row.values()) for row in rows}
    assert found == {
        ("default", "mail", JobState.INITIAL_PENDING, 4, None, None),
        ("default", "mail", JobState.RUNNING, 3, True, None),
        ("default", "mail", JobState.COMPLETED, 2, None, True),
        ("default", "mail", JobState.FAILED_RETRY, 1, None, True),
        ("other", "report", JobState.INITIAL_PENDING, 2, None, None),
        ("other", "report", JobState.RUNNING, 2, True, None),
        ("other", "report", JobState.COMPLETED, 2, None, True),
    }
    submitted = stage.lake.read().where("kind = 'submission'").orderBy("id").collect()
    told = [(row.id, row.type, row.tags, row.priority, row.correlation_id) for row in submitted]
    assert told == [
        ("late", "mail", [], "BULK", ""),
        *((f"mail-{n}", "mail", ["a", "b"], "NORMAL", f"c{n}") for n in range(3)),
        *((f"report-{n}", "report", [], "NORMAL", "") for n in range(2)),
    ]
    assert {row.attempt for row in submitted} == {0}
    failed = stage.lake.read().where("error_category IS NOT NULL").collect()
    assert [row.to_state for row in failed] == [JobState.FAILED_RETRY]


async def completed(dsn: str, *job_ids: str) -> None:
    backend = await PostgresBackend.open(dsn)
    try:
        await backend.enqueue_jobs([Job(id=job_id, type="mail") for job_id in job_ids])
        await backend.dequeue_jobs("worker-1", (), len(job_ids))
        for job_id in job_ids:
            await backend.complete_job(job_id, b"")
    finally:
        await backend.close()


async def deleted(dsn: str, *job_ids: str) -> None:
    backend = await PostgresBackend.open(dsn)
    try:
        assert await backend.delete_jobs([], job_ids) == len(job_ids)
    finally:
        await backend.close()


def test_a_deletion_is_kept_and_counted_as_no_state(stage: Stage) -> None:
    asyncio.run(completed(stage.dsn, "a", "b"))
    stage.run()
    before = {key: row["transitions"] for key, row in stage.rollup().items()}
    asyncio.run(deleted(stage.dsn, "a"))
    report = stage.run()
    assert (report.events, report.bronze_rows) == (1, 1)
    assert before == {
        ("mail", JobState.INITIAL_PENDING): 2,
        ("mail", JobState.RUNNING): 2,
        ("mail", JobState.COMPLETED): 2,
    }
    assert {key: row["transitions"] for key, row in stage.rollup().items()} == before
    [kept] = stage.lake.read().where("event = 'DELETE'").collect()
    assert (kept.from_state, kept.to_state) == (JobState.COMPLETED, None)
    # The checkpoint went on: what comes later is read, and the deletion not again.
    asyncio.run(completed(stage.dsn, "c"))
    assert stage.run().bronze_rows == 3


def test_an_hour_of_deletions_alone_has_no_row(stage: Stage) -> None:
    asyncio.run(completed(stage.dsn, "a"))
    stage.events.connection.execute(
        "UPDATE queue_operator.job_event SET at = at - interval '1 day'"
    )
    asyncio.run(deleted(stage.dsn, "a"))
    report = stage.run()
    assert (len(report.hours), report.rollup_rows) == (2, 3)
