"""What tests share: a real PostgreSQL and a real Kubernetes cluster, made on first use and
taken down at the end of the run.

Set QUEUE_OPERATOR_TEST_KEEP=1 to leave both running for the next run.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings as hypothesis_settings

from queue_operator.devcluster import ClusterInfo, down, up
from queue_operator.devcluster.postgres import Postgres

CLUSTER_NAME = "test"
KEEP = os.environ.get("QUEUE_OPERATOR_TEST_KEEP") == "1"

hypothesis_settings.register_profile("full", max_examples=2000, deadline=None)
hypothesis_settings.register_profile("default", deadline=None)
hypothesis_settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


@pytest.fixture(scope="session")
def postgres_admin_dsn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The superuser's address of an embedded PostgreSQL that only the tests use."""
    server = Postgres(Path("/var/tmp/queue-operator-test-postgres"), "127.0.0.1", 55433)  # noqa: S108
    server.start()
    yield server.admin_dsn
    if not KEEP:
        server.stop()


@pytest.fixture(scope="session")
def cluster() -> Iterator[ClusterInfo]:
    """A cluster of its own for the tests, with a node that runs pods."""
    yield up(CLUSTER_NAME)
    if not KEEP:
        down(CLUSTER_NAME)
