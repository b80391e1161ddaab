"""Children of running jobs, for stores that take them."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest

from queue_operator.backends.protocol import Spawner, SpawnRequest
from queue_operator.domain.dependencies import DependencyMode
from queue_operator.domain.errors import (
    DuplicateJob,
    InvalidArgument,
    InvalidTransition,
    KeyConflict,
    PayloadTooLarge,
    StaleLease,
)
from queue_operator.domain.ids import spawned_id
from queue_operator.domain.job import Demand, Job, Submitted
from queue_operator.domain.ordering import Priority
from queue_operator.domain.retry import Backoff, BackoffStrategy
from queue_operator.domain.states import Event, JobState
from queue_operator.domain.validation import Limits
from queue_operator.testing.breaking import needs_the_store
from queue_operator.testing.driving import apply, claim, job_in, running, submitted
from queue_operator.testing.store import TTL_S, Contract, Store
from queue_operator.testing.table import CHECKPOINTING
from queue_operator.testing.walking import walk

_NEVER: Final = "00000000-0000-4000-8000-000000000000"


def request(parent: Job, token: str, key: str = "1", **fields: Any) -> SpawnRequest:
    job = Job(**({"id": "", "type": "child"} | fields))
    return SpawnRequest(parent_id=parent.id, token=token, key=key, job=job)


async def spawn(backend: Contract, *requests: SpawnRequest) -> list[Submitted]:
    assert isinstance(backend, Spawner)
    return await backend.spawn(requests)


async def test_a_child_is_a_job_that_names_its_parent(backend: Contract) -> None:
    parent, token = await running(backend, correlation_id="order-7")
    [answer] = await spawn(backend, request(parent, token, payload=b"x", tags=frozenset({"eu"})))
    assert (answer.error, answer.duplicate) == (None, False)
    child = await backend.get_job(answer.job_id)
    assert (child.spawned_by, child.correlation_id) == (parent.id, "order-7")
    assert (child.state, child.payload, child.tags) == (
        JobState.INITIAL_PENDING,
        b"x",
        frozenset({"eu"}),
    )
    assert (await claim(backend, child)).payload == b"x"
    assert (await backend.get_job(parent.id)).spawned_by == ""


async def test_a_child_has_the_trace_that_it_was_given_and_not_its_parents(
    backend: Contract,
) -> None:
    parent, token = await running(backend, traceparent=f"00-{1:032x}-{1:016x}-01")
    traces = (f"00-{1:032x}-{2:016x}-01", "")
    requests = [request(parent, token, key=one or "none", traceparent=one) for one in traces]
    answers = await spawn(backend, *requests)
    for answer, trace in zip(answers, traces, strict=True):
        assert (await backend.get_job(answer.job_id)).traceparent == trace


async def test_every_field_of_a_submission_counts(backend: Contract) -> None:
    parent, token = await running(backend, correlation_id="inherited")
    before = await submitted(backend)
    later = datetime(2100, 1, 1, tzinfo=UTC)
    fields: dict[str, Any] = {
        "id": "child-of-mine",
        "type": "mail",
        "payload": b"[1]",
        "content_type": "application/json",
        "tags": frozenset({"eu", "gpu"}),
        "priority": Priority.HIGH,
        "scheduled_at": later,
        "max_attempts": 7,
        "timeout_s": 12.5,
        "backoff": Backoff(strategy=BackoffStrategy.CUSTOM, delays_s=(1.0, 2.0)),
        "correlation_id": "its own",
        "idempotency_key": "once",
        "depends_on": (before.id,),
        "dependency_mode": DependencyMode.CHAIN,
        "suspended": True,
    }
    [answer] = await spawn(backend, request(parent, token, **fields))
    assert (answer.job_id, answer.error) == ("child-of-mine", None)
    child = await backend.get_job("child-of-mine")
    told = fields.pop("scheduled_at")
    assert child.eligible_at == told
    assert {name: getattr(child, name) for name in fields} == fields
    assert child.waiting_for_dependencies


async def test_a_child_may_wait_for_its_parent_and_for_its_siblings(backend: Contract) -> None:
    parent, token = await running(backend)
    first = spawned_id("default", parent.id, "1")
    answers = await spawn(
        backend,
        request(parent, token, "1", type="first", depends_on=(parent.id,)),
        request(parent, token, "2", type="second", depends_on=(first,)),
    )
    assert [answer.error for answer in answers] == [None, None]
    await apply(backend, parent, Event.COMPLETE, token)
    job = await backend.get_job(first)
    await apply(backend, job, Event.COMPLETE, (await claim(backend, job)).token)
    await claim(backend, await backend.get_job(answers[1].job_id))


async def test_a_chain_of_children_is_as_deep_as_it_may_be(backend: Contract) -> None:
    parent, token = await running(backend)
    for depth in (1, 2):
        asked = request(parent, token, "1", type="again", tags=frozenset({f"{depth}"}))
        [answer] = await spawn(backend, replace(asked, most_depth=2))
        assert answer.error is None
        await apply(backend, parent, Event.COMPLETE, token)
        parent = await backend.get_job(answer.job_id)
        assert parent.spawn_depth == depth
        token = (await claim(backend, parent)).token
    [deep] = await spawn(backend, replace(request(parent, token), most_depth=2))
    assert isinstance(deep.error, InvalidArgument)
    assert deep.error.field == "spawn_depth"
    # What it has is found again, whatever may be asked for now; without a bound there is none.
    [first] = await spawn(backend, replace(request(parent, token), most_depth=None))
    [again] = await spawn(backend, replace(request(parent, token), most_depth=2))
    assert (again.job_id, again.duplicate, again.error) == (first.job_id, True, None)
    assert (await backend.get_job(first.job_id)).spawn_depth == 3
    [usual] = await spawn(backend, request(parent, token, "2"))
    assert usual.error is None


async def test_the_same_key_is_the_same_child(backend: Contract) -> None:
    parent, token = await running(backend)
    first, second = await spawn(backend, request(parent, token, "1"), request(parent, token, "2"))
    assert first.job_id != second.job_id
    # The answer was lost: it is asked again, on its own and twice in one batch.
    [again] = await spawn(backend, request(parent, token, "1"))
    twice = await spawn(backend, *[request(parent, token, "3")] * 2)
    assert (again.job_id, again.duplicate, again.error) == (first.job_id, True, None)
    assert [answer.duplicate for answer in twice] == [False, True]
    assert twice[0].job_id == twice[1].job_id
    assert (await backend.get_job_stats([])).total_jobs == 4


@pytest.mark.parametrize("event", [Event.FAIL, Event.LOSE, Event.HAND_BACK])
async def test_a_parent_that_runs_again_gets_the_children_it_had(
    backend: Contract, event: Event
) -> None:
    parent, token = await running(backend)
    before = await spawn(backend, *(request(parent, token, str(n)) for n in range(5)))
    await apply(backend, parent, event, token)
    again = await claim(backend, parent, "worker-2")
    after = await spawn(backend, *(request(parent, again.token, str(n)) for n in range(10)))
    assert [one.job_id for one in after[:5]] == [one.job_id for one in before]
    assert [one.duplicate for one in after] == [True] * 5 + [False] * 5
    assert (await backend.get_job_stats([])).total_jobs == 11


async def test_equal_keys_of_different_parents_are_different_children(backend: Contract) -> None:
    one, its_token = await running(backend)
    two, other_token = await running(backend)
    answers = await spawn(backend, request(one, its_token), request(two, other_token))
    assert len({answer.job_id for answer in answers}) == 2
    assert [(await backend.get_job(answer.job_id)).spawned_by for answer in answers] == [
        one.id,
        two.id,
    ]


async def test_a_child_that_has_ended_is_not_run_again(backend: Contract) -> None:
    parent, token = await running(backend)
    [first] = await spawn(backend, request(parent, token))
    child = await backend.get_job(first.job_id)
    await apply(backend, child, Event.COMPLETE, (await claim(backend, child)).token)
    [again] = await spawn(backend, request(parent, token))
    assert (again.job_id, again.duplicate) == (first.job_id, True)
    assert (await backend.get_job(first.job_id)).state is JobState.COMPLETED


async def test_a_stale_parent_spawns_nothing(backend: Contract) -> None:
    parent, old = await running(backend)
    [known] = await spawn(backend, request(parent, old))
    await apply(backend, parent, Event.LOSE, old)
    again = await claim(backend, parent, "worker-2")
    missing = Job(id="missing", type="t")
    answers = await spawn(
        backend,
        request(parent, old, "stale"),
        request(parent, old),
        request(parent, _NEVER),
        request(parent, "no token at all"),
        request(missing, old),
        request(parent, again.token, "good"),
    )
    assert [type(answer.error) for answer in answers] == [StaleLease] * 5 + [type(None)]
    assert known.error is None
    assert (await backend.get_job_stats([])).total_jobs == 3


@pytest.mark.parametrize("state", JobState)
async def test_only_a_job_that_may_still_complete_spawns(
    backend: Contract, state: JobState
) -> None:
    parent, token = await job_in(backend, state)
    before = (await backend.get_job_stats([])).total_jobs
    [answer] = await spawn(backend, request(parent, token or _NEVER))
    spawns = state in CHECKPOINTING and state is not JobState.CANCELLING
    if state is JobState.CANCELLING:
        assert isinstance(answer.error, InvalidTransition)
        assert (answer.error.job_id, answer.error.state) == (parent.id, state)
    else:
        assert isinstance(answer.error, StaleLease) != spawns
    assert (await backend.get_job_stats([])).total_jobs == before + spawns


async def test_what_is_wrong_with_a_child_is_its_own_answer(store: Store) -> None:
    backend = await store.open(limits=Limits(payload_bytes=4))
    parent, token = await running(backend)
    other = await submitted(backend, idempotency_key="taken", type="one")
    answers = await spawn(
        backend,
        request(parent, token, "1", payload=b"12345"),
        request(parent, token, "2", type=""),
        request(parent, token, "", type="child"),
        request(parent, token, "4", id=other.id),
        request(parent, token, "5", depends_on=("nobody",)),
        request(parent, token, "6", idempotency_key="taken", type="two"),
        request(parent, token, "7", state=JobState.RUNNING),
        request(parent, token, "8"),
    )
    kinds = [type(answer.error) for answer in answers]
    assert kinds == [
        PayloadTooLarge,
        InvalidArgument,
        InvalidArgument,
        DuplicateJob,
        InvalidArgument,
        KeyConflict,
        InvalidArgument,
        type(None),
    ]
    fields = [getattr(answer.error, "field", "") for answer in answers]
    assert fields == [
        "payload",
        "type",
        "key",
        "id",
        "depends_on[0]",
        "idempotency_key",
        "state",
        "",
    ]
    assert (await backend.get_job_stats([])).total_jobs == 3
    with pytest.raises(InvalidArgument, match=r"requests\[0\]"):
        await spawn(backend, "no request")  # type: ignore[arg-type]
    no_job = replace(request(parent, token, "none"), job=None)  # type: ignore[arg-type]
    [answer] = await spawn(backend, no_job)
    assert isinstance(answer.error, InvalidArgument)
    assert answer.error.field == "job"
    assert await spawn(backend) == []


async def test_a_child_with_an_id_of_its_own_is_known_by_it(backend: Contract) -> None:
    parent, token = await running(backend)
    other, other_token = await running(backend)
    mine = request(parent, token, "1", id="mine")
    [first] = await spawn(backend, mine)
    [again] = await spawn(backend, replace(mine, key="2"))
    assert (first.duplicate, again.duplicate, again.job_id) == (False, True, "mine")
    # It is another's child, and no submission of its own.
    [taken] = await spawn(backend, request(other, other_token, "1", id="mine"))
    assert isinstance(taken.error, DuplicateJob)
    both = await spawn(
        backend, request(parent, token, "3", id="new"), request(other, other_token, "3", id="new")
    )
    assert [type(answer.error) for answer in both] == [type(None), DuplicateJob]


async def test_a_repeat_under_an_idempotency_key_is_the_first_job(backend: Contract) -> None:
    parent, token = await running(backend)
    first = await submitted(backend, type="child", idempotency_key="once")
    [answer] = await spawn(backend, request(parent, token, idempotency_key="once"))
    assert (answer.job_id, answer.duplicate) == (first.id, True)
    assert (await backend.get_job(first.id)).spawned_by == ""


async def test_children_are_of_their_parents_namespace(backend: Contract) -> None:
    job = await submitted(backend, namespace="team-a")
    demand = Demand(assignee_id="w", limit=1, namespace="team-a", types=frozenset({job.type}))
    [parent] = await backend.claim([demand], lease_ttl_s=TTL_S)
    wanted = SpawnRequest(
        parent_id=job.id,
        token=parent.token,
        namespace="team-a",
        key="1",
        job=Job(id="", type="child", namespace="team-b"),
    )
    [answer] = await spawn(backend, wanted)
    assert (await backend.get_job(answer.job_id, namespace="team-a")).type == "child"
    [elsewhere] = await spawn(backend, replace(wanted, namespace="team-b"))
    assert isinstance(elsewhere.error, StaleLease)


async def test_a_child_outlives_its_parent_and_still_names_it(backend: Contract) -> None:
    parent, token = await running(backend)
    [answer] = await spawn(backend, request(parent, token))
    await apply(backend, parent, Event.COMPLETE, token)
    await backend.delete_jobs([], [parent.id])
    assert (await backend.get_job(answer.job_id)).spawned_by == parent.id
    await backend.cancel_jobs([], [answer.job_id])
    assert await backend.delete_jobs([], [answer.job_id]) == 1


async def test_a_store_that_is_away_takes_no_child(backend: Contract, store: Store) -> None:
    parent, token = await running(backend)
    await needs_the_store(store, backend, lambda: spawn(backend, request(parent, token)))
    assert (await backend.get_job_stats([])).total_jobs == 1


async def test_a_submitter_cannot_name_a_parent(backend: Contract) -> None:
    with pytest.raises(InvalidArgument, match="spawned_by"):
        await backend.enqueue_job(Job(id="x", type="t", spawned_by="somebody"))


async def test_what_was_left_out_is_resolved_when_the_child_is_claimed(backend: Contract) -> None:
    parent, token = await running(backend)
    delay = timedelta(seconds=0)
    [answer] = await spawn(
        backend, request(parent, token, max_attempts=0, delay_s=delay.total_seconds())
    )
    child = await backend.get_job(answer.job_id)
    await claim(backend, child)
    assert (await backend.get_job(child.id)).max_attempts == 4


async def test_a_cancelled_spawn_is_found_by_a_repeat(backend: Contract) -> None:
    async def bring() -> tuple[Job, str]:
        return await running(backend)

    async def call(parent: tuple[Job, str]) -> list[Submitted]:
        return await spawn(backend, request(*parent, type=parent[0].id))

    async for one in walk(bring, call):
        parent, token = one.subject
        [answer] = await spawn(backend, request(parent, token, type=parent.id))
        assert answer.error is None, one
        assert one.cancelled or answer.duplicate, one
        demand = Demand(assignee_id="w", limit=10, types=frozenset({parent.id}))
        # The parent is of that type too, and runs already.
        claimed = await backend.claim([demand], lease_ttl_s=TTL_S)
        assert [child.job_id for child in claimed] == [answer.job_id], one
