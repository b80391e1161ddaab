"""The mirror of a large fleet: lists seldom, writes what changed, little of what does not last."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from tests.integration.controller.conftest import Stage, StartStage

from queue_operator.backends.protocol import SessionOrder, WorkerSession
from queue_operator.controller import workermirror
from queue_operator.controller.workermirror import SLOW_INTERVAL_S, SLOW_PER_PASS
from queue_operator.domain.errors import Unavailable

FLEET = 120


def session(team: str, n: int, **changes: Any) -> WorkerSession:
    one = WorkerSession(
        session_id=f"{team}-s{n}",
        namespace=team,
        worker_name=f"w{n}",
        replica=team,
        capacity=4,
        connection="c",
    )
    return replace(one, **changes)


async def connected(stage: Stage, team: str, number: int = FLEET) -> list[WorkerSession]:
    """A fleet whose objects say all there is to say."""
    # The module's database is for all its tests.
    old = [one.session_id for one in await stage.backend.list_sessions()]
    await stage.backend.close_sessions(old)
    fleet = [session(team, n) for n in range(number)]
    for one in fleet:
        await stage.backend.open_session(one)
    await stage.workers.list_again()
    for _ in range(4):
        await stage.workers.once()
    return fleet


def statuses(stage: Stage) -> list[dict[str, Any]]:
    return [body["status"] for body in stage.api.workers.values()]


async def test_each_gets_its_object_and_its_status_once(start: StartStage, team: str) -> None:
    stage = await start()
    await connected(stage, team)
    assert len(stage.api.workers) == FLEET
    assert all(one["slots"] == 4 for one in statuses(stage))
    assert set(stage.api.worker_writes.values()) == {1}
    assert stage.stats.workers_created == FLEET
    assert stage.api.worker_lists == 1


async def test_what_is_asked_of_a_session_waits_for_no_fleet_that_arrives(
    start: StartStage, team: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Of 30,000 workers a pass would take ten minutes.
    assert workermirror.PER_PASS == 500
    monkeypatch.setattr(workermirror, "PER_PASS", 50)
    stage = await start()
    await connected(stage, team, 0)
    for n in range(FLEET):
        await stage.backend.open_session(session(team, n))
    assert await stage.workers.once()
    assert len(stage.api.workers) == 50
    (_, name), body = next(iter(stage.api.workers.items()))
    body["spec"] = {"drain": True}
    body["metadata"] |= {"generation": 2, "resourceVersion": "1000000"}
    stage.workers.see(body, gone=False)
    assert await stage.workers.once()
    assert len(stage.api.workers) == 100
    drained = [s for s in await stage.backend.list_sessions() if s.order.drain]
    assert [one.worker_name for one in drained] == [name]
    # Those that were left over come later, and so do their statuses.
    while await stage.workers.once():
        pass
    assert len(stage.api.workers) == FLEET
    assert {one["slots"] for one in statuses(stage)} == {4}


async def test_what_does_not_change_is_neither_read_nor_written(
    start: StartStage, team: str
) -> None:
    stage = await start()
    await connected(stage, team)
    for _ in range(10):
        stage.clock.now_s += SLOW_INTERVAL_S
        await stage.workers.once()
    assert stage.api.worker_writes.total() == FLEET
    assert stage.api.worker_lists == 1


async def test_busy_slots_of_all_are_written_a_few_at_a_time_and_all_in_the_end(
    start: StartStage, team: str
) -> None:
    stage = await start()
    fleet = await connected(stage, team)
    await stage.backend.touch_sessions([replace(one, busy=3) for one in fleet])
    await stage.workers.once()
    # Written a moment ago.
    assert stage.api.worker_writes.total() == FLEET
    stage.clock.now_s += SLOW_INTERVAL_S
    for turn in range(FLEET // SLOW_PER_PASS):
        assert stage.api.worker_writes.total() == FLEET + turn * SLOW_PER_PASS
        await stage.workers.once()
    assert {one["busy"] for one in statuses(stage)} == {3}


async def test_what_lasts_does_not_wait(start: StartStage, team: str) -> None:
    stage = await start()
    fleet = await connected(stage, team)
    await stage.backend.touch_sessions([replace(one, draining=True) for one in fleet])
    await stage.workers.once()
    assert all(one["draining"] for one in statuses(stage))
    await stage.backend.close_sessions([fleet[0].session_id])
    await stage.workers.once()
    # Without a pod, its object goes with it.
    assert len(stage.api.workers) == FLEET - 1


async def test_a_patch_is_seen_in_the_watch(start: StartStage, team: str) -> None:
    stage = await start()
    [one] = await connected(stage, team, 1)
    body = stage.api.workers[team, "w0"]
    body["spec"] = {"drain": True}
    body["metadata"] |= {"generation": 2, "resourceVersion": "1000000"}
    stage.workers.see(body, gone=False)
    await stage.workers.once()
    [stored] = [s for s in await stage.backend.list_sessions() if s.session_id == one.session_id]
    assert stored.order == SessionOrder(drain=True)


async def test_a_patch_that_no_session_can_follow_holds_up_no_other(
    start: StartStage, team: str, caplog: pytest.LogCaptureFixture
) -> None:
    stage = await start()
    await connected(stage, team, 2)
    for name, spec in (("w0", {"tags": ["a\x00"]}), ("w1", {"drain": True})):
        body = stage.api.workers[team, name]
        body["spec"] = spec
        body["metadata"] |= {"generation": 2, "resourceVersion": f"1000000-{name}"}
        stage.workers.see(body, gone=False)
    for _ in range(3):
        await stage.workers.once()
    stored = {s.worker_name: s.order for s in await stage.backend.list_sessions()}
    assert stored == {"w0": SessionOrder(), "w1": SessionOrder(drain=True)}
    told = (
        f"the spec of the QueueWorker {team}/w0 is not taken: "
        "tags: must not contain NUL characters or lone surrogates; correct it"
    )
    assert caplog.messages.count(told) == 1


async def test_a_session_is_ended_only_when_its_object_is_really_gone(
    start: StartStage, team: str
) -> None:
    stage = await start()
    [one] = await connected(stage, team, 1)
    body = stage.api.workers[team, "w0"]
    # The watch says so, or a list from an old server did not have it.
    stage.workers.see(body, gone=True)
    await stage.workers.once()
    assert [s.session_id for s in await stage.backend.list_sessions() if s.namespace == team] == [
        one.session_id
    ]
    del stage.api.workers[team, "w0"]
    stage.workers.see(body, gone=True)
    await stage.workers.once()
    assert not [s for s in await stage.backend.list_sessions() if s.namespace == team]


async def test_whoever_comes_back_after_a_deletion_that_was_cut_off_goes_on(
    start: StartStage, team: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = await start()
    [one] = await connected(stage, team, 1)

    async def nobody(**_: object) -> list[WorkerSession]:
        return []

    async def away(*_: object, **__: object) -> None:
        raise Unavailable("away")

    with monkeypatch.context() as outage:
        # Silent for so long that its object goes, and so does the database.
        outage.setattr(stage.backend, "list_sessions", nobody)
        outage.setattr(stage.backend, "close_sessions", away)
        with pytest.raises(Unavailable):
            await stage.workers.once()
    for _ in range(3):
        await stage.workers.once()
    stored = await stage.backend.list_sessions()
    assert [(s.session_id, s.order) for s in stored] == [(one.session_id, SessionOrder())]
    assert list(stage.api.workers) == [(team, "w0")]


async def test_a_worker_that_comes_back_while_its_object_goes_keeps_its_session(
    start: StartStage, team: str
) -> None:
    slow, other = await start(), await start()
    [gone] = await connected(slow, team, 1)
    await other.workers.list_again()
    await slow.backend.close_sessions([gone.session_id])
    slow.api.deletes.clear()
    late = asyncio.create_task(slow.workers.once())
    await slow.api.deletions.wait()
    back = replace(gone, session_id=f"{team}-again")
    await other.backend.open_session(back)
    for _ in range(3):
        await other.workers.once()
    slow.api.deletes.set()
    await late
    for _ in range(3):
        await slow.workers.once()
        await other.workers.once()
    stored = [one for one in await slow.backend.list_sessions() if one.namespace == team]
    assert [(one.session_id, one.order, one.shown) for one in stored] == [
        (back.session_id, SessionOrder(), True)
    ]
    assert [one["sessionId"] for one in statuses(slow)] == [back.session_id]
    assert slow.stats.workers_deleted == 0


async def test_an_object_that_cannot_name_its_session_is_tried_again_no_sooner_than_others(
    start: StartStage, team: str
) -> None:
    stage = await start()
    [gone] = await connected(stage, team, 1)
    await stage.backend.close_sessions([gone.session_id])
    await stage.backend.open_session(replace(gone, session_id=f"{team}-again"))
    stage.api.rejected.add("w0")
    assert not await stage.workers.once()
    stage.api.rejected.clear()
    # Named, it is told in the pass that follows.
    assert await stage.workers.once()
    assert not await stage.workers.once()
    [stored] = [one for one in await stage.backend.list_sessions() if one.namespace == team]
    assert stored.shown


async def test_workers_of_a_namespace_of_another_operator_are_left_alone(
    start: StartStage, team: str
) -> None:
    ours, theirs = await start(queue_uid="ours"), await start(queue_uid="theirs")
    await connected(ours, team, 3)
    await theirs.workers.list_again()
    # Theirs, in a database of its own, would know none of these sessions.
    known = [one.session_id for one in await theirs.backend.list_sessions()]
    await theirs.backend.close_sessions(known)
    await theirs.workers.once()
    assert len(ours.api.workers) == 3
    assert theirs.stats.workers_deleted == 0
