import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from tests.integration.postgres.locking import until_waiting

from queue_operator.backends.postgres import PostgresBackend, migrate
from queue_operator.backends.postgres.connection import Pool
from queue_operator.backends.postgres.migrate import migrations
from queue_operator.backends.postgres.sessions import TOUCH, SessionStore
from queue_operator.backends.postgres.signals import Announcer
from queue_operator.backends.protocol import SessionOrder, SessionRoll, Topic, WorkerSession

Ask = Callable[..., Awaitable[list[tuple[Any, ...]]]]
Steps = Callable[..., Awaitable[list[dict[str, Any]]]]


@pytest.fixture(autouse=True)
async def no_sessions(ask: Ask) -> None:
    await ask("DELETE FROM worker_session")
    await ask("DELETE FROM session_beat")


@pytest.fixture
def store(pool: Pool) -> SessionStore:
    return SessionStore(pool, Announcer(pool))


def session(session_id: str = "s-1", **fields: Any) -> WorkerSession:
    return WorkerSession(session_id=session_id, namespace="team", worker_name="mailer", **fields)


async def announced(pool: Pool, ask: Ask, act: Callable[[SessionStore], Awaitable[object]]) -> bool:
    """Whether `act` told others that sessions changed."""
    read = "SELECT coalesce(pg_sequence_last_value(%s::regclass), 0)"
    before = await ask(read, f"signal_{Topic.SESSION}")
    announcer = Announcer(pool)
    await act(SessionStore(pool, announcer))
    await announcer.aclose()
    return await ask(read, f"signal_{Topic.SESSION}") != before


async def age(ask: Ask, seconds: int) -> None:
    """All that is known of sessions is so much older."""
    await ask(
        "UPDATE worker_session SET connected_at = connected_at - make_interval(secs => %s)", seconds
    )
    await ask(
        "UPDATE session_beat SET heard_at ="
        " ARRAY(SELECT at - make_interval(secs => %s) FROM unnest(heard_at) AS at)",
        seconds,
    )


async def test_listed_as_it_was_opened(store: SessionStore) -> None:
    opened = session(
        pod_uid="pod-1",
        host="node-1",
        replica="operator-0",
        tags=frozenset({"gpu", "eu"}),
        types=frozenset({"mail", "sms"}),
        capacity=8,
        busy=3,
        draining=True,
        version="1.2",
    )
    await store.open_session(opened)
    [listed] = await store.list_sessions()
    assert listed.connected_at is not None
    assert listed.heartbeat_at == listed.connected_at
    assert replace(listed, connected_at=None, heartbeat_at=None) == opened


async def test_opened_again_it_is_replaced(store: SessionStore) -> None:
    await store.open_session(session(capacity=1, replica="operator-0"))
    await store.open_session(session(capacity=9, replica="operator-1"))
    [listed] = await store.list_sessions()
    assert (listed.capacity, listed.replica) == (9, "operator-1")


async def test_touched_sessions_show_what_they_do(store: SessionStore, ask: Ask) -> None:
    await store.open_session(session("s-1", capacity=4))
    await store.open_session(session("s-2", capacity=4))
    await age(ask, 3600)
    await store.touch_sessions([session("s-1", busy=2, draining=True), session("missing", busy=1)])
    by_id = {listed.session_id: listed for listed in await store.list_sessions()}
    assert set(by_id) == {"s-1", "s-2"}
    assert (by_id["s-1"].busy, by_id["s-1"].draining, by_id["s-1"].capacity) == (2, True, 4)
    assert [s.session_id for s in await store.list_sessions(max_age_s=60)] == ["s-1"]


async def test_kept_sessions_are_alive_and_others_are_not(store: SessionStore, ask: Ask) -> None:
    """One that was left behind is on no roll."""
    await store.open_session(session("s-8", replica="r", connection="c-8"))
    await age(ask, 3600)
    mine = [session(f"s-{n}", replica="r", connection=f"c-{n}") for n in range(3)]
    for one in [*mine, session("s-9", replica="other")]:
        await store.open_session(one)
    await age(ask, 50)
    assert not await store.keep_sessions(SessionRoll.of("r", mine[:2]))
    assert await store.list_sessions(max_age_s=40) == []
    assert await store.keep_sessions(SessionRoll.of("r", mine))
    kept = [one.session_id for one in await store.list_sessions(max_age_s=40)]
    assert kept == ["s-0", "s-1", "s-2"]


async def test_of_two_touches_in_one_batch_the_last_counts(store: SessionStore) -> None:
    await store.open_session(session())
    await store.touch_sessions([session(busy=1), session(busy=2)])
    assert [listed.busy for listed in await store.list_sessions()] == [2]


async def test_batches_in_opposite_order_do_not_block_each_other(store: SessionStore) -> None:
    names = [f"s-{number:03}" for number in range(50)]
    for name in names:
        await store.open_session(session(name))
    batches = [[session(name, busy=busy) for name in names] for busy in range(20)]
    await asyncio.gather(
        *(
            store.touch_sessions(batch[:: 1 if turn % 2 else -1])
            for turn, batch in enumerate(batches)
        )
    )
    assert len({listed.busy for listed in await store.list_sessions()}) == 1


async def test_touches_of_different_sessions_at_once_are_all_shown(store: SessionStore) -> None:
    """Though each of them writes down what is known of all sessions of the replica."""
    names = [f"s-{number:03}" for number in range(20)]
    for name in names:
        await store.open_session(session(name, replica="r"))
    # What a replica says for the first time replaces nothing.
    await store.touch_sessions([session(names[0], replica="r")])
    await asyncio.gather(
        *(store.touch_sessions([session(name, replica="r", busy=7)]) for name in names)
    )
    assert {listed.busy for listed in await store.list_sessions()} == {7}


async def test_a_touch_leaves_other_sessions_of_the_replica_as_they_are(
    store: SessionStore, ask: Ask
) -> None:
    for name in ("s-1", "s-2", "s-3"):
        await store.open_session(session(name, replica="r"))
    await store.touch_sessions([session("s-1", replica="r", busy=1, draining=True, followed=1)])
    await age(ask, 100)
    await store.touch_sessions([session("s-2", replica="r", busy=2)])
    told = {one.session_id: one for one in await store.list_sessions()}
    assert {name: (one.busy, one.draining, one.followed) for name, one in told.items()} == {
        "s-1": (1, True, 1),
        "s-2": (2, False, 0),
        "s-3": (0, False, 0),
    }
    assert [one.session_id for one in await store.list_sessions(max_age_s=60)] == ["s-2"]


async def test_what_was_said_before_a_session_was_opened_again_counts_no_more(
    store: SessionStore,
) -> None:
    """Not even by the same connection."""
    await store.open_session(session(busy=1))
    await store.touch_sessions([session(busy=5, draining=True, followed=3)])
    await store.open_session(session(busy=2))
    [listed] = await store.list_sessions()
    assert (listed.busy, listed.draining, listed.followed) == (2, False, 0)
    assert listed.heartbeat_at == listed.connected_at


async def test_one_touch_may_be_about_sessions_of_several_replicas(store: SessionStore) -> None:
    for name, replica in (("s-1", "a"), ("s-2", "b"), ("s-3", "b")):
        await store.open_session(session(name, replica=replica))
    for busy in (1, 2):
        await store.touch_sessions([session(f"s-{n}", busy=busy * n) for n in (1, 2, 3)])
        told = {one.session_id: one.busy for one in await store.list_sessions()}
        assert told == {"s-1": busy, "s-2": 2 * busy, "s-3": 3 * busy}


async def test_a_replica_has_one_row_of_heartbeats_and_none_when_its_sessions_are_gone(
    store: SessionStore, ask: Ask
) -> None:
    read = "SELECT replica, cardinality(openings) FROM session_beat ORDER BY replica"
    mine = [session(f"s-{n}", replica="r", connection=f"c-{n}") for n in range(3)]
    for one in [*mine, session("s-9", replica="other")]:
        await store.open_session(one)
    await store.touch_sessions([session("s-9")])
    for _ in range(3):
        await store.touch_sessions(mine)
        assert await store.keep_sessions(SessionRoll.of("r", mine))
    assert await ask(read) == [("other", 1), ("r", 3)]
    await store.close_sessions(["s-0"])
    await store.touch_sessions(mine[1:2])
    assert await ask(read) == [("other", 1), ("r", 2)]
    await store.close_sessions(["s-1", "s-2"])
    await store.prune_sessions(3600)
    assert await ask(read) == [("other", 1)]
    await store.open_session(mine[0])
    await store.touch_sessions(mine)
    assert await ask(read) == [("other", 1), ("r", 1)]


async def test_a_touch_that_another_overtakes_is_asked_again(store: SessionStore, dsn: str) -> None:
    """Its statement read what the other one has removed by the time that it gets the row."""
    for name in ("s-1", "s-2"):
        await store.open_session(session(name, replica="r"))
        await store.touch_sessions([session(name, replica="r")])
    async with await psycopg.AsyncConnection.connect(dsn) as other:
        # As a touch of both does.
        await other.execute("SET search_path = queue_operator")
        await other.execute(
            "WITH gone AS (DELETE FROM session_beat RETURNING *) INSERT INTO session_beat"
            " SELECT replica, number + 1, openings, '{4,4}', draining, followed, heard_at"
            " FROM gone"
        )
        late = asyncio.create_task(store.touch_sessions([session("s-2", replica="r", busy=9)]))
        await until_waiting(dsn, 1)
        await other.commit()
        await late
    assert {one.session_id: one.busy for one in await store.list_sessions()} == {"s-1": 4, "s-2": 9}


async def test_a_touch_that_changes_nothing_is_asked_again_too(
    store: SessionStore, ask: Ask, dsn: str
) -> None:
    """Or the session would be taken for a silent one."""
    await store.open_session(session(replica="r"))
    await store.touch_sessions([session(replica="r")])
    await age(ask, 3600)
    async with await psycopg.AsyncConnection.connect(dsn) as other:
        await other.execute("SET search_path = queue_operator")
        await other.execute(
            "WITH gone AS (DELETE FROM session_beat RETURNING *) INSERT INTO session_beat"
            " SELECT replica, number + 1, openings, busy, draining, followed, heard_at FROM gone"
        )
        late = asyncio.create_task(store.touch_sessions([session(replica="r")]))
        await until_waiting(dsn, 1)
        await other.commit()
        await late
    assert [one.session_id for one in await store.list_sessions(max_age_s=60)] == ["s-1"]


async def test_of_two_that_a_replica_says_first_neither_hides_the_other(
    store: SessionStore, dsn: str
) -> None:
    """Neither finds a row of the replica to replace."""
    for name in ("s-1", "s-2"):
        await store.open_session(session(name, replica="r"))
    async with await psycopg.AsyncConnection.connect(dsn) as other:
        await other.execute("SET search_path = queue_operator")
        first: dict[str, object] = {"session_ids": ["s-1"], "connections": [""], "followed": [0]}
        cursor = await other.execute(TOUCH, {**first, "busy": [4], "draining": [False]})
        assert await cursor.fetchall() == [(True, True)]
        late = asyncio.create_task(store.touch_sessions([session("s-2", replica="r", busy=9)]))
        # For the one whose number it would have too.
        await until_waiting(dsn, 1)
        await other.commit()
        await late
    assert {one.session_id: one.busy for one in await store.list_sessions()} == {"s-1": 4, "s-2": 9}


async def test_others_hear_of_changes_and_of_nothing_else(pool: Pool, ask: Ask) -> None:
    async def heard(act: Callable[[SessionStore], Awaitable[object]]) -> bool:
        return await announced(pool, ask, act)

    assert await heard(lambda store: store.open_session(session(busy=1)))
    assert not await heard(lambda store: store.touch_sessions([session(busy=1)]))
    assert await heard(lambda store: store.touch_sessions([session(busy=2)]))
    assert await heard(lambda store: store.touch_sessions([session(busy=2, draining=True)]))
    assert not await heard(lambda store: store.touch_sessions([]))
    assert not await heard(lambda store: store.touch_sessions([session(busy=9, connection="old")]))
    assert not await heard(lambda store: store.session_news([session()]))
    assert not await heard(lambda store: store.keep_sessions(SessionRoll.of("", [session()])))
    assert await heard(lambda store: store.order_session("s-1", SessionOrder(capacity=1)))
    assert not await heard(lambda store: store.order_session("s-1", SessionOrder(capacity=1)))
    assert not await heard(lambda store: store.close_sessions(["missing"]))
    assert await heard(lambda store: store.close_sessions(["s-1"]))


async def test_a_session_that_moved_is_not_closed_by_the_replica_that_it_left(
    store: SessionStore,
) -> None:
    await store.open_session(session("s-1", replica="operator-0"))
    await store.open_session(session("s-1", replica="operator-1"))
    await store.close_sessions(["s-1"], replica="operator-0")
    [listed] = await store.list_sessions()
    assert listed.replica == "operator-1"
    await store.close_sessions(["s-1"], replica="operator-1")
    assert await store.list_sessions() == []


async def test_closed_sessions_are_gone(store: SessionStore) -> None:
    for name in ("s-1", "s-2", "s-3"):
        await store.open_session(session(name))
    await store.close_sessions(["s-1", "s-3", "missing"])
    assert [listed.session_id for listed in await store.list_sessions()] == ["s-2"]


async def test_pruning_removes_only_the_silent(store: SessionStore, ask: Ask) -> None:
    await store.open_session(session("silent"))
    await age(ask, 7200)
    await store.open_session(session("alive"))
    assert await store.prune_sessions(3600) == 1
    assert [listed.session_id for listed in await store.list_sessions()] == ["alive"]
    assert await store.prune_sessions(3600) == 0


async def test_plan_made_with_one_session_does_not_read_all_sessions(
    store: SessionStore, ask: Ask, steps: Steps
) -> None:
    await store.open_session(session())
    await ask("VACUUM ANALYZE worker_session")
    scans = await steps(
        "session_touch",
        "worker_session_pkey",
        session_ids=["s-1"] * 500,
        connections=[""] * 500,
        busy=[1] * 500,
        draining=[False] * 500,
        followed=[0] * 500,
    )
    assert len(scans) == 1
    assert "session_id" in scans[0]["Index Cond"]
    scans = await steps(
        "session_news",
        "worker_session_pkey",
        session_ids=["s-1"] * 500,
        connections=[""] * 500,
        followed=[0] * 500,
    )
    assert len(scans) == 1
    assert "session_id" in scans[0]["Index Cond"]


async def test_what_sessions_did_before_the_schema_had_heartbeats_is_taken_over(
    new_database: Callable[[], str],
) -> None:
    dsn = new_database()
    await migrate(dsn, shipped=[one for one in migrations() if one.name < "0008"])
    async with await psycopg.AsyncConnection.connect(dsn) as connection:
        await connection.execute("SET search_path = queue_operator")
        for name, busy in (("s-1", 1), ("s-2", 2)):
            await connection.execute(
                "INSERT INTO worker_session (session_id, namespace, worker_name, pod_uid, host,"
                " replica, tags, types, capacity, busy, draining, version, connection, followed,"
                " connected_at) VALUES (%s, 'team', 'mailer', '', '', 'r', '{}', '{}', 4, %s, true,"
                " '', '', 5, now() - interval '2 hours')",
                [name, busy],
            )
    await migrate(dsn)
    backend = await PostgresBackend.open(dsn)
    told = {one.session_id: one for one in await backend.list_sessions(max_age_s=60)}
    await backend.touch_sessions([session("s-1", busy=3)])
    [one, other] = await backend.list_sessions(max_age_s=60)
    await backend.close()
    assert {name: (one.busy, one.draining, one.followed) for name, one in told.items()} == {
        "s-1": (1, True, 5),
        "s-2": (2, True, 5),
    }
    assert (one.busy, other.busy) == (3, 2)
