"""The controller against a real API server and a real PostgreSQL."""

import secrets
from collections.abc import AsyncIterator, Iterator

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo
from tests.controller.kubectl import Kubectl, install
from tests.controller.running import RunningController

from queue_operator.backends.postgres import PostgresBackend, migrate
from queue_operator.controller.ports import BackendFactory
from queue_operator.devcluster import ClusterInfo


@pytest.fixture(scope="session")
def installed(cluster: ClusterInfo) -> ClusterInfo:
    """A cluster that knows our resources."""
    install(cluster)
    return cluster


@pytest.fixture
def kubectl(installed: ClusterInfo) -> Iterator[Kubectl]:
    """Kubectl in a namespace of the test's own."""
    namespace = f"controller-{secrets.token_hex(4)}"
    kubectl = Kubectl(installed.kubectl, installed.kubeconfig, namespace)
    kubectl("create", "namespace", namespace)
    yield kubectl
    kubectl("delete", "namespace", namespace, "--wait=false")


@pytest.fixture
async def dsn(postgres_admin_dsn: str) -> AsyncIterator[str]:
    """An empty, migrated database of the test's own."""
    name = f"controller_{secrets.token_hex(4)}"
    admin = await psycopg.AsyncConnection.connect(postgres_admin_dsn, autocommit=True)
    async with admin:
        await admin.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        address = make_conninfo(postgres_admin_dsn, dbname=name)
        await migrate(address)
        yield address
        drop = sql.SQL("DROP DATABASE {} WITH (FORCE)")
        await admin.execute(drop.format(sql.Identifier(name)))


@pytest.fixture
def factory(dsn: str) -> BackendFactory:
    async def open_backend() -> PostgresBackend:
        return await PostgresBackend.open(dsn)

    return open_backend


@pytest.fixture
async def backend(factory: BackendFactory) -> AsyncIterator[PostgresBackend]:
    opened = await factory()
    assert isinstance(opened, PostgresBackend)
    yield opened
    await opened.close()


@pytest.fixture
def controller(factory: BackendFactory, kubectl: Kubectl) -> Iterator[RunningController]:
    """Serves the test's namespace."""
    with RunningController(factory, kubectl.kubeconfig, (kubectl.namespace,)) as running:
        yield running
