"""Metrics of a real queue on a real store."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import psycopg
import pytest
from tests.conftest import empty_database
from tests.unit.metrics import exposition
from tests.unit.metrics.exposition import key
from tests.waiting import DEADLINE_S

from queue_operator.backends.postgres import PostgresBackend, migrate
from queue_operator.backends.protocol import (
    Backend,
    CancelInbox,
    Depths,
    ProgressSink,
    ResourceMirror,
    Sessions,
    Signals,
)
from queue_operator.domain.errors import StaleLease
from queue_operator.domain.job import Job
from queue_operator.domain.outcome import ErrorCategory, ErrorInfo, Outcome
from queue_operator.domain.states import Event, JobState
from queue_operator.metrics.exporter import Exporter, Metrics
from queue_operator.metrics.instrumented import instrument
from queue_operator.queue.clock import SystemClock
from queue_operator.queue.protocol import StreamSpec
from queue_operator.queue.service import QueueService
from queue_operator.settings import MetricsSettings, QueueSettings

LABELS = {"namespace": "team", "type": "mail"}


@pytest.fixture(scope="module")
def database(postgres_admin_dsn: str) -> Iterator[str]:
    with empty_database(postgres_admin_dsn, "metrics") as address:
        yield address


@dataclass(frozen=True)
class Measured:
    queue: QueueService
    backend: PostgresBackend
    exporter: Exporter

    async def scrape(self) -> exposition.Samples:
        await self.exporter.lead()
        await self.exporter.refresh()
        # Series are first shown as 0.
        await asyncio.to_thread(exposition.scraped, self.exporter.port)
        return await asyncio.to_thread(exposition.scraped, self.exporter.port)


@pytest.fixture
async def measured(database: str) -> AsyncIterator[Measured]:
    await migrate(database)
    metrics = Metrics("here")
    backend = instrument(await PostgresBackend.open(database), metrics.recorder)
    queue = QueueService(backend, QueueSettings())
    await queue.start()
    settings = MetricsSettings(host="127.0.0.1", port=0)
    exporter = Exporter(
        metrics,
        settings,
        SystemClock(),
        figures=instrument(backend.figures, metrics.recorder),
        streams=queue,
    )
    await exporter.start()
    yield Measured(queue, backend, exporter)
    await exporter.stop()
    await queue.close()


def test_a_measured_backend_has_every_capability(measured: Measured) -> None:
    for capability in (
        Backend,
        CancelInbox,
        Depths,
        ProgressSink,
        ResourceMirror,
        Sessions,
        Signals,
    ):
        assert isinstance(measured.backend, capability)


async def test_the_life_of_jobs_is_counted(measured: Measured) -> None:
    queue = measured.queue
    jobs = [Job(id=f"j{n}", type="mail", namespace="team", max_attempts=1) for n in range(3)]
    await queue.enqueue_jobs(jobs)
    spec = StreamSpec(assignee_id="worker", capacity=2, namespace="team")
    stream = await queue.open_stream(spec)
    push = await stream.next()
    assert push is not None
    stream.delivered(push)
    assigned = list(push.assignments)
    while len(assigned) < 2:
        push = await stream.next()
        assert push is not None
        stream.delivered(push)
        assigned += push.assignments
    busy = await measured.scrape()
    assert busy[key("queueoperator_worker_slots", namespace="team", state="busy")] == 2
    assert busy[key("queueoperator_worker_slots", namespace="team", state="free")] == 0
    assert busy[key("queueoperator_jobs", **LABELS, state="running")] == 2
    assert busy[key("queueoperator_jobs", **LABELS, state="initial_pending")] == 1
    assert busy[key("queueoperator_oldest_runnable_job_age_seconds", **LABELS)] >= 0
    stream.drain()
    done, failed = assigned
    error = ErrorInfo("broken", ErrorCategory.PERMANENT)
    settled = await stream.settle(
        [
            Outcome(done.job_id, Event.COMPLETE, "team", done.token, b"", worker_plane=True),
            Outcome(
                failed.job_id, Event.FAIL, "team", failed.token, error=error, worker_plane=True
            ),
            Outcome(done.job_id, Event.COMPLETE, "team", str(uuid.uuid4()), worker_plane=True),
        ]
    )
    assert [answer.state for answer in settled[:2]] == [JobState.COMPLETED, JobState.DEAD_LETTER]
    assert isinstance(settled[2].error, StaleLease)
    found = await measured.scrape()
    assert found[key("queueoperator_jobs_submitted_total", **LABELS)] == 3
    assert found[key("queueoperator_job_wait_seconds_count", **LABELS)] == 2
    assert found[key("queueoperator_job_run_seconds_count", **LABELS)] == 2
    assert found[key("queueoperator_jobs_finished_total", **LABELS, state="completed")] == 1
    assert found[key("queueoperator_jobs_finished_total", **LABELS, state="dead_letter")] == 1
    attempts = key(
        "queueoperator_job_attempts_total", **LABELS, outcome="failed", error_class="permanent"
    )
    assert found[attempts] == 1
    assert found[key("queueoperator_stale_outcomes_total", namespace="team")] == 1
    assert found[key("queueoperator_jobs", **LABELS, state="dead_letter")] == 1
    assert found[key("queueoperator_store_call_seconds_count", method="settle")] >= 1
    await stream.close()


async def test_gauges_come_and_go_with_the_store(
    measured: Measured, database: str, postgres_admin_dsn: str
) -> None:
    await measured.queue.enqueue_job(Job(id="one", type="mail", namespace="other"))
    pending = key("queueoperator_jobs", namespace="other", type="mail", state="initial_pending")
    assert (await measured.scrape())[pending] == 1
    name = psycopg.conninfo.conninfo_to_dict(database)["dbname"]
    with psycopg.connect(postgres_admin_dsn, autocommit=True) as admin:
        admin.execute(f'ALTER DATABASE "{name}" WITH ALLOW_CONNECTIONS false')
        admin.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,)
        )
        found = await measured.scrape()
        admin.execute(f'ALTER DATABASE "{name}" WITH ALLOW_CONNECTIONS true')
    assert not [each for each, _ in found if each == "queueoperator_jobs"]
    assert found[key("queueoperator_store_up")] == 0
    assert found[key("queueoperator_store_errors_total", method="lead", code="unavailable")] >= 1
    # Connections that were ended are noticed, and made anew, one by one.
    async with asyncio.timeout(DEADLINE_S):
        while (found := await measured.scrape()).get(pending) is None:
            pass
    assert found[pending] == 1
