"""Names that are removed while lanes are made of them, at every point of either."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from itertools import combinations

import pytest
from psycopg import AsyncConnection
from psycopg.rows import TupleRow
from tests.conftest import migrated_database
from tests.integration.postgres.locking import until_waiting

from queue_operator.backends.postgres import PostgresBackend
from queue_operator.backends.postgres.connection import SCHEMA
from queue_operator.backends.postgres.lanes import INTERN, NAMES
from queue_operator.backends.postgres.tidying import LOCK_NAMES, REMOVE_NAMES, SPANS_S
from queue_operator.domain.job import Demand, Job

Step = Callable[[], Awaitable[object]]

_NAMED = {"namespaces": ["team"], "types": ["t"]}
_ONE = {
    "spaces": ["team"],
    "kinds": ["t"],
    "space_of": [1],
    "kind_of": [1],
    "priorities": ["NORMAL"],
    "tags": ["{a}"],
    "used_s": 300.0,
    "looks": True,
}
_HIDE = "UPDATE namespace SET retired_at = now() - interval '1 hour'"
_NAMELESS = """
SELECT count(*) FROM lane
LEFT JOIN namespace ON namespace.id = lane.namespace_id
LEFT JOIN job_type ON job_type.id = lane.type_id
WHERE namespace.id IS NULL OR job_type.id IS NULL OR namespace.retired_at IS NOT NULL
"""
_WAITS = "SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = %s"


class Actor:
    """A connection on which steps are taken, each as soon as the one before is over."""

    def __init__(self, connection: AsyncConnection[TupleRow], watcher: "Actor | None") -> None:
        self.connection = connection
        self._watcher = watcher
        self._last: asyncio.Task[object] | None = None

    async def take(self, step: Step) -> None:
        """Returns when it is done or waits for a lock, or for the one before it."""
        before = self._last
        task = self._last = asyncio.create_task(self._after(before, step))
        while not task.done() and not await self._waits():
            pass

    async def over(self) -> None:
        if self._last is not None:
            await self._last

    async def _after(self, before: "asyncio.Task[object] | None", step: Step) -> object:
        if before is not None:
            await before
        return await step()

    async def _waits(self) -> bool:
        assert self._watcher is not None
        pid = self.connection.info.backend_pid
        [(waits,)] = await ask(self._watcher.connection, _WAITS, (pid,))
        return bool(waits)


async def ask(
    connection: AsyncConnection[TupleRow], text: str, given: Sequence[object] = ()
) -> list[TupleRow]:
    return await (await connection.execute(text.encode(), given)).fetchall()


@pytest.fixture(scope="module")
def dsn(postgres_admin_dsn: str) -> Iterator[str]:
    with migrated_database(postgres_admin_dsn, "names") as address:
        yield address


@pytest.fixture
async def actors(dsn: str) -> AsyncIterator[tuple[Actor, Actor, Actor]]:
    """Who removes, who makes, and who looks on. Nothing is stored."""
    options = f"-c search_path={SCHEMA}"
    connections = [
        await AsyncConnection.connect(dsn, autocommit=True, options=options) for _ in range(3)
    ]
    watcher = Actor(connections[2], None)
    await watcher.connection.execute("TRUNCATE lane, namespace, job_type")
    await watcher.connection.execute(NAMES, _NAMED)
    yield Actor(connections[0], watcher), Actor(connections[1], watcher), watcher
    for connection in connections:
        await connection.close()


def removal(connection: AsyncConnection[TupleRow]) -> list[Step]:
    wanted = {"hidden_s": 0.0, "max_rows": 10, "spans": list(SPANS_S)}

    async def lock() -> None:
        await connection.execute("BEGIN")
        [(types, spaces)] = await (await connection.execute(LOCK_NAMES, wanted)).fetchall()
        locked.update(types=types, spaces=spaces)

    async def remove() -> None:
        await connection.execute(REMOVE_NAMES, locked)

    locked: dict[str, object] = {"hidden_s": 0.0}
    return [lock, remove, lambda: connection.execute("COMMIT")]


def making(connection: AsyncConnection[TupleRow]) -> list[Step]:
    """The lane of a job whose names are there, or were a moment ago."""

    async def begin() -> None:
        await connection.execute("BEGIN")
        await connection.execute(INTERN, _ONE)

    return [
        lambda: connection.execute(NAMES, _NAMED),
        begin,
        lambda: connection.execute("COMMIT"),
    ]


@pytest.mark.parametrize("hidden", [False, True], ids=["in sight", "hidden"])
@pytest.mark.parametrize("order", [*combinations(range(6), 3)], ids=str)
async def test_no_lane_is_without_its_names(
    actors: tuple[Actor, Actor, Actor], order: tuple[int, ...], hidden: bool
) -> None:
    remover, maker, watcher = actors
    if hidden:
        await watcher.connection.execute(_HIDE)
    first, second = iter(removal(remover.connection)), iter(making(maker.connection))
    for place in range(6):
        if place in order:
            await remover.take(next(first))
        else:
            await maker.take(next(second))
    await remover.over()
    await maker.over()
    assert await ask(watcher.connection, _NAMELESS) == [(0,)]
    # Who found a name gone makes it again.
    for _ in range(2):
        for step in making(maker.connection):
            await step()
    assert await ask(watcher.connection, "SELECT count(*) FROM lane") == [(1,)]
    assert await ask(watcher.connection, _NAMELESS) == [(0,)]


async def test_a_lane_that_is_being_made_keeps_its_names(
    actors: tuple[Actor, Actor, Actor],
) -> None:
    """Though nobody sees it yet who looks for lanes."""
    remover, maker, watcher = actors
    for step in making(maker.connection)[:2]:
        await step()
    for step in removal(remover.connection):
        await step()
    await maker.connection.execute("COMMIT")
    assert await ask(watcher.connection, _NAMELESS) == [(0,)]


async def test_a_lane_made_after_the_first_look_keeps_its_names(
    actors: tuple[Actor, Actor, Actor],
) -> None:
    """The lock may be taken by a statement that began before the lane was there."""
    remover, maker, watcher = actors
    for step in making(maker.connection):
        await step()
    looked: dict[str, object] = {"hidden_s": 0.0}
    for field, table in [("types", "job_type"), ("spaces", "namespace")]:
        text = f"SELECT id FROM {table} FOR UPDATE"
        looked[field] = [number for (number,) in await ask(remover.connection, text)]
    assert await (await remover.connection.execute(REMOVE_NAMES, looked)).fetchall() == [(0,)]
    assert await ask(watcher.connection, _NAMELESS) == [(0,)]


async def test_a_job_is_stored_while_its_names_are_being_removed(dsn: str) -> None:
    options = f"-c search_path={SCHEMA}"
    async with await AsyncConnection.connect(dsn, options=options) as remover:
        backend = await PostgresBackend.open(dsn)
        await remover.execute(NAMES, {"namespaces": ["default"], "types": ["t"]})
        await remover.commit()
        for step in removal(remover)[:2]:
            await step()
        storing = asyncio.create_task(backend.enqueue_job(Job(id="one", type="t")))
        await until_waiting(dsn, 1)
        await remover.commit()
        await storing
        demand = Demand(assignee_id="w", limit=1)
        [claimed] = await backend.claim([demand], lease_ttl_s=60)
        assert claimed.job_id == "one"
        await backend.close()
