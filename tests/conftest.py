"""What tests share: a real PostgreSQL and a real Kubernetes cluster, made on first use and
taken down at the end of the run.

Set QUEUE_OPERATOR_TEST_KEEP=1 to leave both running for the next run, and to use what an earlier
one left. What another run is using is shared with it, and the last of them takes it down; what a
killed run left behind is taken down first.
"""

import asyncio
import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import psycopg
import pytest
from hypothesis import settings as hypothesis_settings
from psycopg import sql
from psycopg.conninfo import make_conninfo
from tests import hanging
from tests.audited import Audited
from tests.shared import used

from queue_operator.backends.postgres import migrate
from queue_operator.devcluster import ClusterInfo, Postgres, down, statuses, up

# What runs for ever after a test ends the run, and says where it stands.
pytest_configure = hanging.pytest_configure
pytest_runtest_call = hanging.pytest_runtest_call
pytest_runtest_teardown = hanging.pytest_runtest_teardown
pytest_unconfigure = hanging.pytest_unconfigure

CLUSTER_NAME = "test"
POSTGRES_PORT_VARIABLE = "QUEUE_OPERATOR_TEST_POSTGRES_PORT"
# Below those that the kernel gives to connections that programs of this machine open.
POSTGRES_PORT = int(os.environ.get(POSTGRES_PORT_VARIABLE, "25433"))
# Not in a temporary folder of pytest's: the server's user must be able to reach it.
POSTGRES_FOLDER = Path(f"/var/tmp/queue-operator-test-postgres-{POSTGRES_PORT}")  # noqa: S108
# How many statements the queue runs is counted by the server itself.
POSTGRES_SETTINGS = {"shared_preload_libraries": "pg_stat_statements"}
# A worker that a test starts serves no metrics but where the test asks for them.
os.environ["QUEUE_OPERATOR_METRICS_PORT"] = "0"
KEEP = os.environ.get("QUEUE_OPERATOR_TEST_KEEP") == "1"

hypothesis_settings.register_profile("full", max_examples=2000, deadline=None)
# The same examples each time: new ones are for the full run to find.
hypothesis_settings.register_profile("default", deadline=None, derandomize=True)
hypothesis_settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


@pytest.fixture(scope="session")
def postgres_admin_dsn() -> Iterator[str]:
    """The superuser's address of an embedded PostgreSQL that only the tests use."""
    server = Postgres(POSTGRES_FOLDER, "127.0.0.1", POSTGRES_PORT, settings=POSTGRES_SETTINGS)

    def remove() -> None:
        server.kill()
        shutil.rmtree(POSTGRES_FOLDER, ignore_errors=True)

    with used(_lock(POSTGRES_FOLDER.name), server.start, remove, keep=KEEP):
        yield server.admin_dsn


@pytest.fixture
def audited(caplog: pytest.LogCaptureFixture) -> Audited:
    """The lines of the audit that this test makes."""
    return Audited(caplog)


@pytest.fixture
def new_database(postgres_admin_dsn: str) -> Iterator[Callable[[], str]]:
    """Makes empty databases and drops them at the end."""
    with ExitStack() as databases:
        yield lambda: databases.enter_context(empty_database(postgres_admin_dsn, "test"))


@contextmanager
def empty_database(admin_dsn: str, prefix: str) -> Iterator[str]:
    """Dropped at the end, whoever is still connected."""
    name = f"{prefix}_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(admin_dsn, autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        yield make_conninfo(admin_dsn, dbname=name)
        admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@contextmanager
def migrated_database(admin_dsn: str, prefix: str) -> Iterator[str]:
    """As `empty_database`, with the tables of this release."""
    with empty_database(admin_dsn, prefix) as address:
        asyncio.run(migrate(address))
        yield address


@pytest.fixture(scope="session")
def cluster() -> Iterator[ClusterInfo]:
    """A cluster of its own for the tests, with a node that runs pods."""

    def remove() -> None:
        if CLUSTER_NAME in {status.name for status in statuses()}:
            down(CLUSTER_NAME)

    lock = _lock(f"queue-operator-test-cluster-{CLUSTER_NAME}")
    with used(lock, partial(up, CLUSTER_NAME), remove, keep=KEEP) as started:
        yield started


def _lock(name: str) -> Path:
    return Path(f"/var/tmp/{name}.lock")  # noqa: S108
