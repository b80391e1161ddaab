"""What becomes of sessions and QueueWorkers, without an API server."""

import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from queue_operator.backends.protocol import SessionOrder, WorkerSession
from queue_operator.controller.queueworker import (
    Existing,
    make_plan,
    manifest,
    object_name,
)

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
SESSION = WorkerSession(
    session_id="s1",
    namespace="ns",
    worker_name="pod-1",
    pod_uid="pod-uid",
    host="node",
    tags=frozenset({"gpu", "eu"}),
    types=frozenset({"a"}),
    capacity=4,
    busy=1,
    version="0.1.0",
    connected_at=NOW,
    heartbeat_at=NOW,
)
KEY = ("ns", "pod-1")


def existing(**changes: Any) -> Existing:
    item = Existing("ns", "pod-1", "qw-uid", 1, "pod-uid", True, {}, {})
    return replace(item, **changes)


def with_status(session: WorkerSession = SESSION, **changes: Any) -> Existing:
    """The object after its first status was written."""
    plan = make_plan([session], [existing(**changes)], (), NOW)
    ((item, status),) = *plan.first.values(), *plan.write
    return replace(item, status=status)


def conditions(status: Any) -> dict[str, tuple[str, str]]:
    return {c["type"]: (c["status"], c["reason"]) for c in status["conditions"]}


def test_a_new_session_gets_an_object() -> None:
    plan = make_plan([SESSION], [], (), NOW)
    assert plan.create == (SESSION,)
    assert not plan.delete
    assert not plan.write


def test_the_object_belongs_to_the_pod() -> None:
    body = manifest(SESSION)
    (owner,) = body["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("Pod", "pod-1", "pod-uid")
    assert body["spec"] == {}


def test_a_process_worker_owns_itself() -> None:
    assert "ownerReferences" not in manifest(replace(SESSION, pod_uid=""))["metadata"]


def test_status_of_a_connected_worker() -> None:
    status = with_status().status
    assert status["effective"] == {"capacity": 4, "tags": ["eu", "gpu"], "types": ["a"]}
    assert (status["slots"], status["busy"], status["sessionId"]) == (4, 1, "s1")
    assert conditions(status) == {"Ready": ("True", "Connected")}


def test_an_unchanged_session_writes_nothing() -> None:
    assert make_plan([SESSION], [with_status()], (), NOW + timedelta(minutes=1)).write == ()


@pytest.mark.parametrize(
    "later", [replace(SESSION, busy=2), replace(SESSION, heartbeat_at=NOW + timedelta(seconds=9))]
)
def test_heartbeats_and_busy_slots_wait_their_turn(later: WorkerSession) -> None:
    item = with_status()
    assert make_plan([later], [item], {KEY}, NOW).write == ()
    assert len(make_plan([later], [item], (), NOW).write) == 1


def test_a_change_of_capacity_does_not_wait() -> None:
    later = replace(SESSION, capacity=8)
    assert len(make_plan([later], [with_status()], {KEY}, NOW).write) == 1


def test_draining_shows() -> None:
    ((_, status),) = make_plan([replace(SESSION, draining=True)], [with_status()], {KEY}, NOW).write
    assert status["draining"] is True
    assert conditions(status)["Ready"] == ("False", "Draining")


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        ((), "-"),
        (("eu", "pool=a"), "eu,pool=a"),
        (tuple(f"pool-of-tags={n:02}" for n in range(20)), "pool-of-tags=00,pool-of-tags=01,"),
        (("t" * 100, "u" * 100), "2"),
    ],
)
def test_lists_are_short_enough_for_a_column(names: tuple[str, ...], shown: str) -> None:
    session = replace(SESSION, tags=frozenset(names), capacity=9)
    ((_, status),) = make_plan([session], [with_status()], {KEY}, NOW).write
    assert status["tagsText"].startswith(shown)
    assert len(status["tagsText"]) <= 64


def test_how_many_more_there_are_is_said() -> None:
    session = replace(SESSION, types=frozenset(f"type-of-job-{n:02}" for n in range(20)))
    ((_, status),) = make_plan([session], [with_status()], {KEY}, NOW).write
    assert status["typesText"] == "type-of-job-00,type-of-job-01,type-of-job-02,type-of-job-03,+16"


def test_a_lost_session_makes_it_not_ready_once() -> None:
    later = NOW + timedelta(seconds=5)
    ((item, status),) = make_plan([], [with_status()], {KEY}, later).write
    assert conditions(status)["Ready"] == ("False", "Disconnected")
    assert status["busy"] == 0
    assert status["conditions"][0]["lastTransitionTime"] == "2026-01-02T03:04:10Z"
    again = make_plan([], [replace(item, status=status)], (), later + timedelta(minutes=9))
    assert again.write == ()


def test_one_without_a_pod_is_deleted_with_its_session() -> None:
    item = existing(owner_uid="")
    assert make_plan([], [item], (), NOW).delete == (item,)


def test_one_made_by_somebody_else_is_never_deleted() -> None:
    item = existing(owner_uid="", managed=False)
    plan = make_plan([], [item], (), NOW)
    assert plan.delete == ()
    assert conditions(plan.write[0][1])["Ready"][0] == "False"


def test_the_spec_is_the_session_s_order() -> None:
    spec = {"capacity": 2, "tags": ["eu"], "drain": True}
    order = SessionOrder(capacity=2, tags=frozenset({"eu"}), drain=True)
    assert make_plan([SESSION], [with_status(spec=spec)], (), NOW).order == ((SESSION, order),)
    told = replace(SESSION, order=order, shown=True)
    assert make_plan([told], [with_status(spec=spec)], (), NOW).order == ()
    assert make_plan([told], [with_status()], (), NOW).order == ((told, SessionOrder()),)


def test_what_is_asked_of_a_session_is_told_after_its_object_names_it() -> None:
    order = SessionOrder(drain=True)
    plan = make_plan([SESSION], [existing(spec={"drain": True})], (), NOW)
    assert plan.order == ((SESSION, order),)
    assert plan.first[KEY][1]["sessionId"] == "s1"
    assert plan.write == ()


def test_a_session_is_told_that_its_object_was_seen() -> None:
    assert make_plan([SESSION], [with_status()], (), NOW).order == ((SESSION, SessionOrder()),)
    seen = replace(SESSION, shown=True)
    assert make_plan([seen], [with_status()], (), NOW).order == ()


def test_a_session_is_told_nothing_before_its_object_names_it() -> None:
    """Until then another replica may take the object for what an older session left."""
    for item in (existing(), with_status(replace(SESSION, session_id="older"))):
        plan = make_plan([SESSION], [item], (), NOW)
        assert plan.order == ()
        [(_, status)] = plan.write
        assert status["sessionId"] == "s1"


def test_a_session_whose_object_was_deleted_is_ended() -> None:
    seen = replace(SESSION, shown=True)
    plan = make_plan([seen], [], (), NOW)
    assert plan.order == ((seen, SessionOrder(ended=True)),)
    assert plan.create == ()


def test_an_order_is_in_effect_once_the_stream_follows_it() -> None:
    order = SessionOrder(capacity=2, tags=frozenset())
    told = replace(SESSION, shown=True, order=order, order_number=3, followed=2)
    spec = {"capacity": 2, "tags": []}
    status = with_status(told, spec=spec).status
    assert (status["slots"], status["effective"]["tags"]) == (4, ["eu", "gpu"])
    assert conditions(status)["SpecApplied"] == ("False", "NotInEffect")
    status = with_status(replace(told, followed=3), spec=spec).status
    assert (status["slots"], status["effective"]["tags"]) == (2, [])
    assert status["declared"]["capacity"] == 4
    assert conditions(status)["SpecApplied"] == ("True", "InEffect")


def test_one_left_by_another_pod_is_made_anew() -> None:
    item = existing(owner_uid="older-pod")
    plan = make_plan([SESSION], [item], (), NOW)
    assert plan.delete == (item,)
    assert plan.create == (SESSION,)
    assert plan.write == ()


def test_the_newest_session_of_a_restarted_container_counts() -> None:
    newer = replace(SESSION, session_id="s2", connected_at=NOW + timedelta(seconds=1))
    ((_, status),) = make_plan([newer, SESSION], [existing()], (), NOW).write
    assert status["sessionId"] == "s2"


def cost_s(number: int) -> float:
    """Of a plan for so many workers that stay, that go, that come, and whose object is gone."""
    names = [f"w{n}" for n in range(4 * number)]
    sessions = [
        replace(SESSION, session_id=name, worker_name=name, shown=n % 4 == 3)
        for n, name in enumerate(names)
    ]
    objects = [
        existing(name=name, uid=name, owner_uid="pod-uid" if n % 4 == 0 else "older")
        for n, name in enumerate(names)
        if n % 4 < 2
    ]

    def spent() -> float:
        began = time.process_time()
        plan = make_plan(sessions, objects, (), NOW)
        took = time.process_time() - began
        parts = (plan.write, plan.delete, plan.create)
        assert [len(part) for part in parts] == [number, number, 2 * number]
        return took

    return min(spent() for _ in range(3))


def test_a_plan_takes_time_in_proportion_to_the_workers() -> None:
    # In the square of them it would take 64 times as long.
    assert cost_s(1600) < 24 * cost_s(200)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, None),
        ({"capacity": 4, "tags": ["gpu", "eu"], "drain": False}, ("True", "InEffect")),
        ({"capacity": 2}, ("False", "NotInEffect")),
        ({"drain": True}, ("False", "NotInEffect")),
    ],
)
def test_whether_the_spec_is_in_effect(spec: Any, expected: tuple[str, str] | None) -> None:
    assert conditions(with_status(spec=spec).status).get("SpecApplied") == expected


def test_of_a_spec_that_an_earlier_definition_let_in_the_rest_is_in_effect() -> None:
    spec = {"capacity": 50_000, "drain": True, "of_a_later_release": "x" * 5000}
    item = existing(spec=spec)
    told = replace(SESSION, shown=True)
    plan = make_plan([told], [item], (), NOW)
    assert plan.order == ((told, SessionOrder(drain=True)),)
    _, status = plan.first[KEY]
    [found] = [c for c in status["conditions"] if c["type"] == "SpecApplied"]
    assert (found["status"], found["reason"]) == ("False", "Invalid")
    assert found["message"] == (
        "not in effect where it is wrong; correct that or take it away: spec.capacity: Input "
        "should be less than or equal to 10000; spec.of_a_later_release: Extra inputs are not "
        "permitted"
    )


def test_names_that_the_definition_has_no_room_for_are_cut() -> None:
    session = replace(SESSION, host="h" * 300, version="v" * 300)
    status = with_status(session).status
    assert status["host"] == "h" * 254 + "…"
    assert status["version"] == "v" * 254 + "…"


@pytest.mark.parametrize("name", ["pod-1", "a.b-c.d", "x" * 253])
def test_a_legal_name_is_kept(name: str) -> None:
    assert object_name(name) == name


@pytest.mark.parametrize("name", ["Wörker 1", "", "-", "UPPER", "x" * 254, "a..b", "ends-"])
def test_other_names_become_legal_and_stay_distinct(name: str) -> None:
    legal = object_name(name)
    assert object_name(legal) == legal
    assert object_name(name + "!") != legal
