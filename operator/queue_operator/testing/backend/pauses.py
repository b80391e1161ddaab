"""Pauses: what is paused is not claimed, by no replica, and counts as waiting."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any, Final

import pytest

from queue_operator.backends.protocol import Glance, Pause, Pauses, Signals, Topic
from queue_operator.domain.errors import InvalidArgument
from queue_operator.domain.job import Demand
from queue_operator.domain.states import Event, JobState
from queue_operator.testing.breaking import needs_the_store
from queue_operator.testing.driving import apply, claim, job_in, running, submitted
from queue_operator.testing.store import TTL_S, Contract, Store
from queue_operator.testing.walking import walk

_ANY: Final = Demand(assignee_id="w", limit=100)
_TEXT: Final[dict[str, Any]] = {"tags": "abc"}


def _pausing(backend: Contract) -> Pauses:
    assert isinstance(backend, Pauses)
    return backend


async def _pause(backend: Contract, namespace: str = "default", type: str = "") -> Pause:
    return await _pausing(backend).pause(Pause(namespace=namespace, type=type))


async def _claimed(backend: Contract, **demand: Any) -> list[str]:
    """Ids of the jobs that are claimed."""
    assignments = await backend.claim([replace(_ANY, **demand)], lease_ttl_s=TTL_S)
    return [one.job_id for one in assignments]


async def _seen(backend: Contract, **demand: Any) -> bool:
    assert isinstance(backend, Glance)
    [there] = await backend.eligible_for([replace(_ANY, **demand)])
    return there


async def test_a_pause_is_listed_until_it_ends(store: Store) -> None:
    here, there = _pausing(await store.open()), _pausing(await store.open())
    assert await there.pauses() == []
    given = Pause(namespace="a", type="mail", reason="the relay is down", by="ops")
    pause = await here.pause(given)
    assert replace(pause, since=None) == given
    assert pause.since is not None
    assert abs(datetime.now(UTC) - pause.since) < timedelta(minutes=1)
    others = [
        await here.pause(Pause(namespace=namespace, type=type))
        for namespace, type in (("b", "mail"), ("a", ""), ("B", "ü"))
    ]
    assert await there.pauses() == [others[2], others[1], pause, others[0]]
    assert await there.pauses("a") == [others[1], pause]
    assert await there.pauses("nowhere") == []
    assert await there.resume("a", "mail") is True
    assert await here.pauses("a") == [others[1]]
    assert await here.resume("a", "mail") is False
    assert await here.resume("c") is False


async def test_a_pause_that_is_made_again_keeps_its_beginning(backend: Contract) -> None:
    first = await _pausing(backend).pause(Pause(namespace="a", reason="one", by="x"))
    again = Pause(namespace="a", reason="two", by="y", since=datetime(2001, 1, 1, tzinfo=UTC))
    second = await _pausing(backend).pause(again)
    assert second == replace(again, since=first.since)
    assert await _pausing(backend).pauses() == [second]


async def test_nothing_of_a_paused_type_is_claimed(backend: Contract) -> None:
    mail = await submitted(backend, type="mail", tags=frozenset({"x"}))
    report = await submitted(backend, type="report")
    elsewhere = await submitted(backend, type="mail", namespace="other")
    await _pause(backend, type="mail")
    assert not await _seen(backend, types=frozenset({"mail"}))
    assert await _seen(backend)
    assert await _claimed(backend, types=frozenset({"mail"})) == []
    assert await backend.dequeue_jobs("w", ["x"], 5) == []
    assert await _claimed(backend) == [report.id]
    assert await _claimed(backend, namespace="other") == [elsewhere.id]
    assert not await _seen(backend)
    # One of a lane that nobody has seen before is no exception.
    later = await submitted(backend, type="mail", tags=frozenset({"y"}))
    assert await _claimed(backend) == []
    await _pausing(backend).resume("default", "mail")
    assert await _seen(backend)
    assert await _claimed(backend) == [mail.id, later.id]


async def test_nothing_of_a_paused_namespace_is_claimed(backend: Contract) -> None:
    jobs = [await submitted(backend, type=kind) for kind in ("mail", "report")]
    elsewhere = await submitted(backend, namespace="other")
    for type in ("", "mail"):
        await _pause(backend, type=type)
    assert await _claimed(backend) == []
    assert await backend.dequeue_jobs("w", [], 5) == []
    assert await _claimed(backend, namespace="other") == [elsewhere.id]
    # Each pause ends for itself.
    await _pausing(backend).resume("default")
    assert await _claimed(backend) == [jobs[1].id]
    await _pausing(backend).resume("default", "mail")
    assert await _claimed(backend) == [jobs[0].id]


async def test_of_many_demands_only_those_for_what_is_paused_get_nothing(
    backend: Contract,
) -> None:
    for kind in ("mail", "report"):
        for _ in range(3):
            await submitted(backend, type=kind)
    await _pause(backend, type="mail")
    demands = [
        Demand(assignee_id=kind, limit=2, types=frozenset({kind})) for kind in ("mail", "report")
    ]
    given = await backend.claim(demands, lease_ttl_s=TTL_S)
    assert [(one.assignee_id, one.type) for one in given] == [("report", "report")] * 2


async def test_nothing_that_is_paused_is_claimed_on_another_replica(store: Store) -> None:
    here, there = await store.open(), await store.open()
    jobs = [await submitted(here, type=kind) for kind in ("mail", "report")]
    first = await submitted(here, type="first")
    # It has looked at the store before.
    assert await _claimed(there, types=frozenset({"first"})) == [first.id]
    await _pause(here, type="mail")
    assert await _claimed(there, types=frozenset({"mail"})) == []
    assert not await _seen(there, types=frozenset({"mail"}))
    assert await there.dequeue_jobs("w", [], 5, namespace="other") == []
    assert await _claimed(there) == [jobs[1].id]
    # Whoever comes later finds it, too.
    third = await store.open()
    assert await _claimed(third) == []
    await _pausing(third).resume("default", "mail")
    assert await _claimed(there) == [jobs[0].id]


async def test_a_paused_job_waits_and_is_not_lost(backend: Contract, store: Store) -> None:
    retried, token = await running(backend, type="t", max_attempts=3)
    lost, _ = await running(backend, type="t", max_attempts=3)
    waiting = await submitted(backend, type="t")
    await _pause(backend, type="t")
    await apply(backend, retried, Event.FAIL, token)
    await store.age(TTL_S + 1)
    await backend.expire_leases(lease_ttl_s=TTL_S)
    await store.age(10 * TTL_S)
    assert await backend.expire_leases(lease_ttl_s=TTL_S) == []
    assert await _claimed(backend) == []
    stats = await backend.get_job_stats([])
    assert (stats.total_jobs, stats.pending_jobs, stats.failed_jobs) == (3, 1, 2)
    assert (await backend.get_job(waiting.id)).state is JobState.INITIAL_PENDING
    await _pausing(backend).resume("default", "t")
    assert sorted(await _claimed(backend)) == sorted([waiting.id, retried.id, lost.id])


async def test_what_runs_goes_on_while_its_type_is_paused(backend: Contract) -> None:
    jobs = [await submitted(backend, type="t") for _ in range(3)]
    tokens = {}
    for one in await backend.claim([_ANY], lease_ttl_s=TTL_S):
        tokens[one.job_id] = one.token
    await _pause(backend)
    await backend.complete_job(jobs[0].id, b"", token=tokens[jobs[0].id])
    await apply(backend, jobs[1], Event.HAND_BACK, tokens[jobs[1].id])
    assert (await backend.cancel_jobs([], [jobs[2].id])).cancelled_job_ids == (jobs[2].id,)
    assert (await backend.get_job(jobs[0].id)).state is JobState.COMPLETED
    assert await _claimed(backend) == []


async def test_what_is_paused_can_be_submitted_searched_and_cancelled(backend: Contract) -> None:
    await _pause(backend)
    await _pause(backend, type="never seen before")
    job = await submitted(backend, tags=frozenset({"x"}))
    child = await submitted(backend, depends_on=(job.id,))
    dead, _ = await job_in(backend, JobState.UNSCHEDULED)
    assert (await backend.get_job_stats(["x"])).pending_jobs == 1
    assert (await backend.cancel_jobs(["x"], [])).cancelled_job_ids == (job.id,)
    assert (await backend.get_job(child.id)).state is JobState.UNSCHEDULED
    assert await backend.delete_jobs(["x"], [dead.id]) == 2


async def test_whoever_listens_hears_of_the_end_of_a_pause(store: Store) -> None:
    here, there = await store.open(), await store.open()
    job = await submitted(here)
    await _pause(here)
    for backend in (there, here):
        assert isinstance(backend, Signals)
        topics = backend.listen()
        assert Topic.READY in await anext(topics)
        await _pausing(here).resume("default")
        while Topic.READY not in await anext(topics) or not await _seen(backend):
            pass
        await _pause(here)
        await topics.aclose()  # type: ignore[attr-defined]
    await _pausing(here).resume("default")
    assert (await claim(there, job)).job_id == job.id


_WRONG: Final[dict[str, tuple[Any, ...]]] = {
    "namespace": ("", None, 7, "a\x00", "x" * 256),
    "type": (None, 7, "\ud800", "x" * 256),
    "reason": (None, 7, "a\x00", "x" * 1025),
    "by": (None, 7, "a\x00", "x" * 1025),
}


@pytest.mark.parametrize("field", _WRONG)
async def test_a_wrong_pause_is_refused_by_name(backend: Contract, field: str) -> None:
    for value in _WRONG[field]:
        with pytest.raises(InvalidArgument) as raised:
            await _pausing(backend).pause(Pause(**{"namespace": "a", field: value}))
        assert raised.value.field == field
        if field in ("namespace", "type"):
            with pytest.raises(InvalidArgument) as raised:
                await _pausing(backend).resume(**{"namespace": "a", field: value})
            assert raised.value.field == field
    with pytest.raises(InvalidArgument):
        await _pausing(backend).pause("a")  # type: ignore[arg-type]
    assert await _pausing(backend).pauses() == []


async def test_pauses_need_the_store(backend: Contract, store: Store) -> None:
    pause = await _pause(backend)
    await needs_the_store(
        store,
        backend,
        lambda: _pause(backend),
        lambda: _pausing(backend).resume("default"),
        lambda: _pausing(backend).pauses(),
    )
    assert await _pausing(backend).pauses() == [pause]


async def test_a_cancelled_pause_is_found_by_a_repeat(backend: Contract) -> None:
    names = count()

    async def bring() -> str:
        return f"cancelled {next(names)}"

    async def call(namespace: str) -> Pause:
        return await _pause(backend, namespace)

    async for one in walk(bring, call):
        again = await _pause(backend, one.subject)
        assert await _pausing(backend).pauses(one.subject) == [again], one
        assert one.cancelled or one.answers == (again,), one


async def test_a_cancelled_resume_is_found_by_a_repeat(backend: Contract) -> None:
    names = count()

    async def bring() -> str:
        namespace = f"resumed {next(names)}"
        await _pause(backend, namespace)
        return namespace

    async def call(namespace: str) -> bool:
        return await _pausing(backend).resume(namespace)

    async for one in walk(bring, call):
        was_left = await call(one.subject)
        assert one.cancelled or (one.answers == (True,) and not was_left), one
        assert await _pausing(backend).pauses(one.subject) == [], one


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("demands", None),
        ("demands", "w"),
        ("demands", [7]),
        ("assignee_id", [replace(_ANY, assignee_id="")]),
        ("limit", [_ANY, replace(_ANY, limit=0)]),
        ("tags", [replace(_ANY, **_TEXT)]),
    ],
)
async def test_a_glance_needs_a_demand(backend: Contract, field: str, wrong: Any) -> None:
    assert isinstance(backend, Glance)
    assert await backend.eligible_for([]) == []
    with pytest.raises(InvalidArgument) as refused:
        await backend.eligible_for(wrong)
    assert refused.value.field == field
