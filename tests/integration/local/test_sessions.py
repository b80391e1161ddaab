"""Worker sessions."""

from typing import Any

from tests.integration.local.conftest import Local, LocalStore

from queue_operator.backends.protocol import SessionRoll, Sessions, WorkerSession
from queue_operator.testing.clauses import proves
from queue_operator.testing.store import TTL_S


def session(session_id: str = "s-1", **fields: Any) -> WorkerSession:
    return WorkerSession(
        session_id=session_id, **{"namespace": "team", "worker_name": "mailer", **fields}
    )


async def test_listed_as_it_was_opened(store: LocalStore, backend: Local) -> None:
    assert isinstance(backend, Sessions)
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
    await backend.open_session(opened)
    [listed] = await (await store.open()).list_sessions()
    assert listed.connected_at is not None
    assert listed.heartbeat_at == listed.connected_at
    without = {"connected_at": None, "heartbeat_at": None}
    assert WorkerSession(**{**_fields(listed), **without}) == opened


def _fields(one: WorkerSession) -> dict[str, Any]:
    return {name: getattr(one, name) for name in WorkerSession.__dataclass_fields__}


async def test_opened_again_it_is_replaced(backend: Local) -> None:
    await backend.open_session(session(capacity=1, replica="operator-0"))
    await backend.open_session(session(capacity=9, replica="operator-1"))
    [listed] = await backend.list_sessions()
    assert (listed.capacity, listed.replica) == (9, "operator-1")


async def test_touched_sessions_show_what_they_do(store: LocalStore, backend: Local) -> None:
    await backend.open_session(session("s-1", capacity=4))
    await backend.open_session(session("s-2", capacity=4))
    store.clock.advance(3600)
    await backend.touch_sessions(
        [session("s-1", busy=1), session("s-1", busy=2, draining=True), session("missing", busy=1)]
    )
    by_id = {listed.session_id: listed for listed in await backend.list_sessions()}
    assert set(by_id) == {"s-1", "s-2"}
    assert (by_id["s-1"].busy, by_id["s-1"].draining, by_id["s-1"].capacity) == (2, True, 4)
    assert (by_id["s-2"].busy, by_id["s-2"].draining) == (0, False)
    assert [s.session_id for s in await backend.list_sessions(max_age_s=60)] == ["s-1"]


async def test_kept_sessions_are_alive_and_others_are_not(
    store: LocalStore, backend: Local
) -> None:
    """One that was left behind is on no roll."""
    await backend.open_session(session("s-8", replica="r", connection="c-8"))
    store.clock.advance(3600)
    mine = [session(f"s-{n}", replica="r", connection=f"c-{n}") for n in range(3)]
    for one in [*mine, session("s-9", replica="other")]:
        await backend.open_session(one)
    store.clock.advance(50)
    assert not await backend.keep_sessions(SessionRoll.of("r", mine[:2]))
    assert await backend.list_sessions(max_age_s=40) == []
    assert await backend.keep_sessions(SessionRoll.of("r", mine))
    kept = [one.session_id for one in await backend.list_sessions(max_age_s=40)]
    assert kept == ["s-0", "s-1", "s-2"]


async def test_listed_by_namespace_and_worker(backend: Local) -> None:
    await backend.open_session(session("1", namespace="b", worker_name="x"))
    await backend.open_session(session("2", namespace="a", worker_name="y"))
    await backend.open_session(session("3", namespace="a", worker_name="x"))
    assert [one.session_id for one in await backend.list_sessions()] == ["3", "2", "1"]


@proves("queue-api.Sessions.rule.11")
async def test_a_session_that_moved_is_not_closed_by_the_replica_that_it_left(
    backend: Local,
) -> None:
    await backend.open_session(session("s-1", replica="operator-0"))
    await backend.open_session(session("s-1", replica="operator-1"))
    await backend.close_sessions(["s-1"], replica="operator-0")
    [listed] = await backend.list_sessions()
    assert listed.replica == "operator-1"
    await backend.close_sessions(["s-1"], replica="operator-1")
    assert await backend.list_sessions() == []


async def test_closed_sessions_are_gone(backend: Local) -> None:
    for name in ("s-1", "s-2", "s-3"):
        await backend.open_session(session(name))
    await backend.close_sessions(["s-1", "s-3", "missing"])
    assert [listed.session_id for listed in await backend.list_sessions()] == ["s-2"]


async def test_a_sweep_removes_those_silent_for_an_hour(store: LocalStore, backend: Local) -> None:
    await backend.open_session(session("silent"))
    await store.age(3500)
    await backend.open_session(session("alive"))
    await backend.expire_leases(lease_ttl_s=TTL_S)
    assert len(await backend.list_sessions()) == 2
    await store.age(200)
    await backend.expire_leases(lease_ttl_s=TTL_S)
    assert [listed.session_id for listed in await backend.list_sessions()] == ["alive"]
