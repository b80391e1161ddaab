import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from queue_operator.backends.postgres.connection import Pool
from queue_operator.backends.postgres.sessions import SessionStore
from queue_operator.backends.postgres.signals import Announcer
from queue_operator.backends.protocol import SessionOrder, SessionRoll, Topic, WorkerSession

Ask = Callable[..., Awaitable[list[tuple[Any, ...]]]]
Steps = Callable[..., Awaitable[list[dict[str, Any]]]]


@pytest.fixture(autouse=True)
async def no_sessions(ask: Ask) -> None:
    await ask("DELETE FROM worker_session")


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
    await ask("UPDATE worker_session SET heartbeat_at = heartbeat_at - interval '1 hour'")
    await store.touch_sessions([session("s-1", busy=2, draining=True), session("missing", busy=1)])
    by_id = {listed.session_id: listed for listed in await store.list_sessions()}
    assert set(by_id) == {"s-1", "s-2"}
    assert (by_id["s-1"].busy, by_id["s-1"].draining, by_id["s-1"].capacity) == (2, True, 4)
    assert [s.session_id for s in await store.list_sessions(max_age_s=60)] == ["s-1"]


async def test_kept_sessions_are_alive_and_others_are_not(store: SessionStore, ask: Ask) -> None:
    """One that was left behind is on no roll."""
    await store.open_session(session("s-8", replica="r", connection="c-8"))
    await ask("UPDATE worker_session SET heartbeat_at = heartbeat_at - interval '1 hour'")
    mine = [session(f"s-{n}", replica="r", connection=f"c-{n}") for n in range(3)]
    for one in [*mine, session("s-9", replica="other")]:
        await store.open_session(one)
    await ask("UPDATE worker_session SET heartbeat_at = heartbeat_at - interval '50 seconds'")
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
    await ask("UPDATE worker_session SET heartbeat_at = now() - interval '2 hours'")
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
    assert len(scans) == 2
    assert all("session_id" in scan["Index Cond"] for scan in scans)
    scans = await steps(
        "session_news",
        "worker_session_pkey",
        session_ids=["s-1"] * 500,
        connections=[""] * 500,
        followed=[0] * 500,
    )
    assert len(scans) == 1
    assert "session_id" in scans[0]["Index Cond"]
