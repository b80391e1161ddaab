"""Two real Prometheus servers scrape one replica, as where they are to be highly available."""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from tests.conftest import migrated_database
from tests.integration.metrics.fleet import Replica
from tests.waiting import DEADLINE_S, STATEMENT_S

from observability.asking import Prometheus
from observability.doorway import Doorway
from observability.running import RunningPrometheus, configuration
from queue_operator.backends.postgres import PostgresBackend
from queue_operator.devcluster.processes import wait_until
from queue_operator.domain.job import Job

FREQUENT_S, SELDOM_S = 1, 4
SUBMITTED = "queueoperator_jobs_submitted_total"


@pytest.fixture
def database(postgres_admin_dsn: str) -> Iterator[str]:
    with migrated_database(postgres_admin_dsn, "scraped") as address:
        yield address


@pytest.fixture
def replica(database: str, tmp_path: Path) -> Iterator[Replica]:
    one = Replica(database, tmp_path, 0)
    one.server.await_ready()
    yield one
    one.server.process.kill()
    one.server.process.wait()


@contextmanager
def scraping(replica: Replica, address: str, every_s: int, folder: Path) -> Iterator[Prometheus]:
    """A Prometheus with an address of its own."""
    with ExitStack() as stack:
        door = stack.enter_context(Doorway(address))
        door.ports = [replica.port]
        config = configuration([f"127.0.0.1:{door.port}"], [], f"{every_s}s")
        one = stack.enter_context(RunningPrometheus(folder / address, config))
        one.await_ready()
        yield one.api


def submitted(prometheus: Prometheus) -> float:
    """What the counter reached, also after the end of the replica."""
    found = prometheus.at(f"max_over_time({SUBMITTED}[10m])", time.time())
    return sum(one.last for one in found)


def risen(prometheus: Prometheus) -> float:
    """From the first sample on, as `increase` counts it."""
    found = prometheus.at(f"min_over_time({SUBMITTED}[10m])", time.time())
    return submitted(prometheus) - sum(one.last for one in found)


def was_just_scraped(prometheus: Prometheus) -> bool:
    [at] = prometheus.at("timestamp(up)", time.time())
    return time.time() - at.last < SELDOM_S / 4


async def test_a_replica_that_ends_waits_for_both(
    replica: Replica, database: str, tmp_path: Path
) -> None:
    store = await PostgresBackend.open(database, statement_timeout_s=STATEMENT_S)
    with (
        scraping(replica, "127.0.0.2", FREQUENT_S, tmp_path) as often,
        scraping(replica, "127.0.0.3", SELDOM_S, tmp_path) as seldom,
    ):
        both = often, seldom
        wait_until(lambda: all(one.at("up == 1", time.time()) for one in both), "both", DEADLINE_S)
        jobs = [Job(id=str(n), type="mail", namespace="team") for n in range(5)]
        await store.enqueue_jobs(jobs[:3])
        wait_until(lambda: all(submitted(one) == 3 for one in both), "the counts", DEADLINE_S)
        # Each was shown the series before it had counted.
        assert [risen(one) for one in both] == [3, 3]
        wait_until(lambda: was_just_scraped(seldom), "its scrape", DEADLINE_S)
        await store.enqueue_jobs(jobs[3:])
        began = time.monotonic()
        assert replica.server.end() == 0, replica.server.log
        assert time.monotonic() - began > SELDOM_S / 4
        assert [submitted(one) for one in both] == [5, 5]
        assert "were not scraped" not in replica.server.log
    await store.close()
