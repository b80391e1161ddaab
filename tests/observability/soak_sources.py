"""What figures say after the soak, compared with Postgres, the kernel, and what was done: after one
run with retries, two rolling restarts and a change of replicas.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import psycopg
import pytest
from tests.e2e.sources import Process
from tests.observability.soaking import Load
from tests.waiting import DEADLINE_S

from observability.local import Local
from queue_operator import __version__
from queue_operator.devcluster.processes import wait_until

_JOBS: Final = """
    SELECT lower(state), count(*) FROM (
        SELECT state FROM ready UNION ALL SELECT state FROM lease UNION ALL SELECT state FROM final
    ) AS every GROUP BY 1
"""
_ATTEMPTS: Final = """
    SELECT worker_name, count(*) FROM (
        -- What never reached the worker was released when its replica ended.
        SELECT worker_name FROM attempt WHERE event <> 'RELEASE' UNION ALL
        SELECT worker_name FROM final WHERE reason = 'COMPLETE' AND NOT EXISTS (
            SELECT FROM attempt
            WHERE attempt.job_no = final.job_no AND attempt.version = lease_version
        )
    ) AS every GROUP BY 1
"""
_LOST: Final = "SELECT count(*) FROM attempt WHERE event = 'LOSE' OR from_state = 'UNKNOWN_RETRY'"
_SERIES: Final = 25_000


@dataclass(frozen=True)
class Told:
    """The two sides."""

    queue: Local
    load: Load
    since_s: float

    def value(self, expression: str) -> float:
        [one] = self.queue.prometheus.api.at(expression, time.time())
        return one.last

    def by(self, label: str, expression: str) -> dict[str, float]:
        found = self.queue.prometheus.api.at(expression, time.time())
        return {one.labels[label]: one.last for one in found}

    def ever(self, counter: str) -> float:
        """What it reached in each process, also those that are gone."""
        window = f"{time.time() - self.since_s + 60:.0f}s"
        return self.value(f"sum(max_over_time({counter}[{window}])) or vector(0)")

    def rows(self, statement: str) -> dict[str, float]:
        """A number for each name."""
        with self._connected() as connection:
            return {str(name): float(n) for name, n in connection.execute(statement.encode())}

    def sql(self, statement: str) -> float:
        with self._connected() as connection:
            [(number,)] = connection.execute(statement.encode()).fetchall()
        return float(number)

    def _connected(self) -> "psycopg.Connection[tuple[Any, ...]]":
        return psycopg.connect(self.queue.dsn, options="-c search_path=queue_operator")


def _jobs(told: Told) -> None:
    assert told.by("state", "sum by (state) (queueoperator_jobs) > 0") == told.rows(_JOBS)
    assert told.value("max(queueoperator_waiting_lanes)") == 0
    assert told.value("sum(queueoperator_needed_slots) or vector(0)") == 0
    assert told.value("max(queueoperator_oldest_runnable_job_age_seconds) or vector(0)") == 0
    assert told.value("max(queueoperator_event_log_lag_seconds)") == 0
    assert told.ever("queueoperator_leases_expired_total") == told.sql(_LOST)


def _workers(told: Told) -> None:
    """Those that ran all the time, on whichever replica."""
    attempts = told.rows(_ATTEMPTS)
    found = told.by("instance", "sum by (instance) (queueworker_attempts_total)")
    timed = told.by("instance", "sum by (instance) (queueworker_attempt_seconds_count)")
    for name, (_, port) in told.queue.workers.items():
        address = f"127.0.0.1:{port}"
        assert (found[address], timed[address]) == (attempts[name], attempts[name]), name
    slots = told.by("state", "sum by (state) (queueoperator_worker_slots)")
    free = told.sql("SELECT sum(capacity) FROM worker_session")
    assert slots == {"free": free, "busy": 0, "draining": 0}
    streams = told.sql("SELECT count(*) FROM worker_session")
    assert told.value("sum(queueoperator_worker_streams)") == streams == len(told.queue.workers)
    # One session at the beginning, and one more for each replica that it had to leave.
    assert told.value("sum(queueworker_sessions_total)") > streams


def _replicas(told: Told) -> None:
    count = len(told.queue.replicas)
    assert told.value('count(up{job="queue-operator"} == 1)') == count
    assert told.value("sum(queueoperator_leader)") == 1
    assert told.value("min(queueoperator_store_up)") == 1
    versions = told.by("version", "count by (version) (queueoperator_build_info)")
    assert versions == {__version__: count}
    assert told.value("max(scrape_samples_scraped)") < _SERIES
    memory = told.by("instance", 'process_resident_memory_bytes{job="queue-operator"}')
    for one in told.queue.replicas:
        real = Process(one.process.pid).resident_bytes
        assert memory[f"127.0.0.1:{one.ports['METRICS']}"] == pytest.approx(real, rel=0.2)
    size = told.sql("SELECT pg_database_size(current_database())")
    assert told.value("max(queueoperator_database_size_bytes)") == pytest.approx(size, rel=0.2)


def _requests(told: Told) -> None:
    """One that ends may have had some since it was scraped last, but for those of jobs."""
    created = 'queueoperator_http_requests_total{method="POST",route="/v1/jobs/batch"}'
    assert 0.8 * told.load.batches <= told.ever(created) <= told.load.batches
    assert told.ever('queueoperator_http_requests_total{code=~"5.."}') == 0
    assert told.value("sum(queueoperator_http_requests_in_flight)") == 0


CHECKS: Final[tuple[Callable[[Told], None], ...]] = (_jobs, _workers, _replicas, _requests)


def compare(queue: Local, load: Load, since_s: float) -> None:
    """Once all that is shown is of the time after the load."""
    ended = time.time() + 3 * queue.pace.scrape_s + queue.pace.look_s
    told = Told(queue, load, since_s)
    wait_until(lambda: told.value("min(timestamp(up))") > ended, "later scrapes", DEADLINE_S)
    for check in CHECKS:
        check(told)
