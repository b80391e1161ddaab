"""The suite of the queue runs on every rig: a new one adds its factory to `RIGS`."""

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial

import pytest
import pytest_asyncio
from tests.conftest import migrated_database
from tests.contract.store import PostgresStore
from tests.contract_queue.over_grpc import GrpcRig

from queue_operator.testing.memory import MemoryStore
from queue_operator.testing.queue.fixtures import desk  # noqa: F401
from queue_operator.testing.queue.invariants import SEEDS
from queue_operator.testing.queue.local import LocalRig
from queue_operator.testing.queue.rig import QueueRig
from queue_operator.testing.sqlite import SqliteStore


@pytest.fixture(scope="session")
def postgres_dsn(postgres_admin_dsn: str) -> Iterator[str]:
    """A migrated database for this suite alone."""
    with migrated_database(postgres_admin_dsn, "contract_queue") as address:
        yield address


Make = Callable[[], Awaitable[LocalRig]]


def _memory(_: pytest.FixtureRequest, replicas: int) -> Make:
    return LocalRig(MemoryStore(), replicas).start


def _sqlite(_: pytest.FixtureRequest, replicas: int) -> Make:
    return LocalRig(SqliteStore(), replicas).start


def _postgres(request: pytest.FixtureRequest, replicas: int) -> Make:
    dsn: str = request.getfixturevalue("postgres_dsn")

    async def make() -> LocalRig:
        return await LocalRig(await PostgresStore.on(dsn), replicas).start()

    return make


def _grpc(request: pytest.FixtureRequest, replicas: int) -> Make:
    dsn: str = request.getfixturevalue("postgres_dsn")

    async def make() -> LocalRig:
        return await GrpcRig(await PostgresStore.on(dsn), replicas).start()

    return make


RIGS: dict[str, Callable[[pytest.FixtureRequest], Make]] = {
    "memory": partial(_memory, replicas=1),
    "memory-replicas": partial(_memory, replicas=2),
    "sqlite": partial(_sqlite, replicas=1),
    "sqlite-replicas": partial(_sqlite, replicas=2),
    "postgres": partial(_postgres, replicas=1),
    "postgres-replicas": partial(_postgres, replicas=2),
    "grpc": partial(_grpc, replicas=1),
    "grpc-replicas": partial(_grpc, replicas=2),
}


# News go from one replica to the other through the store: of two on a file those modules are run
# that ask for it. Servers, which run as replicas, are on Postgres. Of two servers over gRPC those
# are run where it matters that a stream and a call are on different ones: the rest is the same as
# on one, or as on two in one process.
SELECTED = {
    "sqlite-replicas": {
        "test_cancel",
        "test_pausing",
        "test_sessions",
        "test_slots",
        "test_workers",
    },
    "grpc-replicas": {"test_cancel", "test_ending", "test_slots", "test_streaming", "test_workers"},
}

# A store that is away is away for every replica, and takes seconds to come back.
OUTAGES = {
    "test_calls_without_the_store_change_nothing",
    "test_deletions_without_the_store_delete_nothing",
    "test_streams_outlive_an_outage_of_the_store",
}

# Of the random histories all are run where they cost next to nothing, and some on each of the
# others, not the same ones.
HISTORIES = {
    "sqlite": range(1, 5),
    "postgres": range(5, 7),
    "postgres-replicas": range(7, 9),
    "grpc": range(9, 11),
}
FULL = os.environ.get("QUEUE_OPERATOR_TEST_FULL") == "1"

# Workers' streams are not for clients of another process.
IN_PROCESS = [name for name in RIGS if not name.startswith("grpc")]


@pytest.fixture(params=RIGS, scope="session")
def make_rig(request: pytest.FixtureRequest) -> Make:
    """Synchronous, because fixtures of a whole run cannot be made inside a test's loop."""
    return RIGS[request.param](request)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def rig(make_rig: Make) -> AsyncIterator[QueueRig]:
    """One for all tests on it, in a loop that outlives them."""
    rig = await make_rig()
    yield rig
    await rig.close()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what is not selected for a rig."""
    left_out = [item for item in items if not _is_selected(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if _is_selected(item)]


def _is_selected(item: pytest.Item) -> bool:
    chosen = getattr(item, "callspec", None)
    rig = str(chosen.params.get("make_rig")) if chosen is not None else ""
    seed = chosen.params.get("seed") if chosen is not None else None
    if seed is not None and not FULL and seed not in HISTORIES.get(rig, SEEDS):
        return False
    if rig.endswith("-replicas") and item.name.partition("[")[0] in OUTAGES:
        return False
    return item.path.stem in SELECTED.get(rig, {item.path.stem})
