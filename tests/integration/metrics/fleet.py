"""Several `queue-operator serve` on one store, scraped all the time; and the store asked itself."""

import signal
import threading
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final

import psycopg
from tests.integration.serving import Server, free_port
from tests.unit.metrics import exposition
from tests.waiting import DEADLINE_S

from queue_operator.devcluster.processes import wait_until
from queue_operator.metrics.job_counters import OUTCOMES, WITH_CLASS

Totals = Counter[tuple[str, ...]]

COUNTERS: Final = {
    "queueoperator_jobs_submitted_total": ("namespace", "type"),
    "queueoperator_job_attempts_total": ("namespace", "type", "outcome", "error_class"),
    "queueoperator_jobs_finished_total": ("namespace", "type", "state"),
    "queueoperator_job_wait_seconds_count": ("namespace", "type"),
    "queueoperator_job_run_seconds_count": ("namespace", "type"),
}

_ATTEMPTS: Final = """
    SELECT namespace.name, job_type.name, told.event, lower(coalesce(told.category, '')), count(*)
    FROM (
        -- An attempt that was lost stays so; its row tells what came of it late.
        SELECT job_no, CASE WHEN from_state = 'UNKNOWN_RETRY' THEN 'LOSE' ELSE event END AS event,
               error ->> 'category' AS category
        FROM queue_operator.attempt
        UNION ALL
        SELECT job_no, 'COMPLETE', NULL FROM queue_operator.final
        WHERE state = 'COMPLETED' AND reason = 'COMPLETE' AND NOT EXISTS (
            SELECT FROM queue_operator.attempt
            WHERE attempt.job_no = final.job_no AND attempt.version = final.lease_version
        )
    ) AS told
    JOIN queue_operator.job USING (job_no) JOIN queue_operator.lane ON lane.id = job.lane_id
    JOIN queue_operator.namespace ON namespace.id = lane.namespace_id
    JOIN queue_operator.job_type ON job_type.id = lane.type_id
    GROUP BY 1, 2, 3, 4
"""
_STORED: Final = """
    SELECT namespace.name, job_type.name, coalesce(lower(final.state), ''), count(*)
    FROM queue_operator.job
    LEFT JOIN queue_operator.final USING (job_no)
    JOIN queue_operator.lane ON lane.id = job.lane_id
    JOIN queue_operator.namespace ON namespace.id = lane.namespace_id
    JOIN queue_operator.job_type ON job_type.id = lane.type_id
    GROUP BY 1, 2, 3
"""
_RUNNING: Final = "SELECT count(*) FROM queue_operator.lease"


def stored(dsn: str) -> Totals:
    """What the history of the jobs says that the counters must be. Nothing may be running."""
    totals: Totals = Counter()
    with psycopg.connect(dsn) as connection:
        assert connection.execute(_RUNNING).fetchall() == [(0,)]
        for namespace, kind, event, category, n in connection.execute(_ATTEMPTS):
            outcome = OUTCOMES[event]
            error_class = category if outcome in WITH_CLASS else ""
            attempt = namespace, kind, outcome, error_class
            totals["queueoperator_job_attempts_total", *attempt] += n
            totals["queueoperator_job_run_seconds_count", namespace, kind] += n
            totals["queueoperator_job_wait_seconds_count", namespace, kind] += n
        for namespace, kind, state, n in connection.execute(_STORED):
            totals["queueoperator_jobs_submitted_total", namespace, kind] += n
            if state:
                totals["queueoperator_jobs_finished_total", namespace, kind, state] += n
    return totals


class Replica:
    """One server, and the last value of each of its series."""

    def __init__(self, dsn: str, folder: Path, number: int) -> None:
        self.port = free_port()
        self.last: exposition.Samples = {}
        self.values: exposition.Samples = {}
        environment = {
            "DATABASE__DSN": dsn,
            "REPLICA": f"replica-{number}",
            "METRICS__PORT": str(self.port),
            "METRICS__DEPTH_INTERVAL_S": "0.2",
            "METRICS__LEADER_S": "1.5",
            "METRICS__LINGER_S": "8",
            "QUEUE__LEASE_TTL_S": "1",
            "QUEUE__CANCEL_TIMEOUT_S": "1",
        }
        self.server = Server(environment, folder / f"replica-{number}.log")

    def scrape(self) -> None:
        try:
            self.last = exposition.scraped(self.port)
        except (urllib.error.URLError, ConnectionError, OSError):
            self.last = {}
        self.values |= self.last

    @property
    def leads(self) -> bool:
        return self.last.get(exposition.key("queueoperator_leader")) == 1


class Fleet:
    """Replicas that come and go, and a scraper that adds up what each showed last."""

    def __init__(self, dsn: str, folder: Path) -> None:
        self._dsn = dsn
        self._folder = folder
        self.all: list[Replica] = []
        self.up: list[Replica] = []
        self._over = threading.Event()
        self._scraper = threading.Thread(target=self._scrape_on, daemon=True)
        self._scraper.start()

    def start(self) -> Replica:
        replica = Replica(self._dsn, self._folder, len(self.all))
        self.all.append(replica)
        self.up.append(replica)
        replica.server.await_ready()
        return replica

    def end(self, replica: Replica) -> None:
        assert replica.server.end() == 0, replica.server.log
        self.up.remove(replica)

    def kill(self, replica: Replica) -> None:
        replica.server.process.send_signal(signal.SIGKILL)
        replica.server.process.wait()
        self.up.remove(replica)

    def roll(self) -> None:
        """A rolling restart: a new one is ready before an old one ends."""
        for replica in list(self.up):
            self.start()
            self.end(replica)

    def leader(self) -> Replica:
        self.until(lambda: sum(replica.leads for replica in self.up) == 1, "one leads")
        return next(replica for replica in self.up if replica.leads)

    def totals(self) -> Totals:
        totals: Totals = Counter()
        for replica in self.all:
            for (name, labels), value in replica.values.items():
                if name in COUNTERS and value:
                    told = dict(labels)
                    totals[name, *(told[label] for label in COUNTERS[name])] += int(value)
        return totals

    def until(self, condition: Callable[[], bool], what: str) -> None:
        wait_until(condition, what, DEADLINE_S)

    def settle(self) -> None:
        """Returns when the counters are what the store says, and stay so."""
        expected = stored(self._dsn)
        try:
            self.until(lambda: self.totals() == expected, "the counters add up")
        except Exception as error:
            found = self.totals()
            raise AssertionError(
                f"lacking: {expected - found}; too many: {found - expected}"
            ) from error
        assert not [key for key in expected if "unknown" in key[1:3] or "other" in key[1:3]]

    def close(self) -> None:
        self._over.set()
        self._scraper.join()
        for replica in self.all:
            replica.server.process.kill()
            replica.server.process.wait()

    def _scrape_on(self) -> None:
        while not self._over.wait(0.25):
            for replica in list(self.all):
                if replica.server.process.poll() is None:
                    replica.scrape()
