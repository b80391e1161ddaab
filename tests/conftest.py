"""What tests share: a real PostgreSQL and a real Kubernetes cluster, made on first use and
taken down at the end of the run.

Set QUEUE_OPERATOR_TEST_KEEP=1 to leave both running for the next run. What ran before is
used as it is, and left running.
"""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings as hypothesis_settings

from queue_operator.devcluster import ClusterInfo, Postgres, down, statuses, up

CLUSTER_NAME = "test"
# Not in a temporary folder of pytest's: the server's user must be able to reach it.
POSTGRES_FOLDER = Path("/var/tmp/queue-operator-test-postgres")  # noqa: S108
POSTGRES_PORT = 55433
KEEP = os.environ.get("QUEUE_OPERATOR_TEST_KEEP") == "1"

hypothesis_settings.register_profile("full", max_examples=2000, deadline=None)
hypothesis_settings.register_profile("default", deadline=None)
hypothesis_settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


@pytest.fixture(scope="session")
def postgres_admin_dsn() -> Iterator[str]:
    """The superuser's address of an embedded PostgreSQL that only the tests use."""
    server = Postgres(POSTGRES_FOLDER, "127.0.0.1", POSTGRES_PORT)
    was_running = server.running()
    server.start()
    yield server.admin_dsn
    if not (was_running or KEEP):
        server.kill()
        shutil.rmtree(POSTGRES_FOLDER)


@pytest.fixture(scope="session")
def cluster() -> Iterator[ClusterInfo]:
    """A cluster of its own for the tests, with a node that runs pods."""
    was_running = CLUSTER_NAME in {status.name for status in statuses()}
    yield up(CLUSTER_NAME)
    if not (was_running or KEEP):
        down(CLUSTER_NAME)
