"""Jobs that wait for others, while the others end, are deleted, or are only being submitted."""

import asyncio
import random
from collections.abc import Callable, Sequence

import pytest
from tests.integration.postgres.conftest import Ask
from tests.integration.postgres.lengths import rounds
from tests.integration.postgres.locking import until_waiting
from tests.integration.postgres.watching import Watched, watched

from queue_operator.backends.postgres import PostgresBackend
from queue_operator.domain.dependencies import DependencyMode
from queue_operator.domain.errors import InvalidArgument, QueueError
from queue_operator.domain.job import Demand, Job
from queue_operator.domain.outcome import ErrorCategory, ErrorInfo, Outcome, Settled
from queue_operator.domain.states import Event, JobState

TTL_S = 600.0
DEADLY = ErrorInfo("no use", ErrorCategory.PERMANENT)

# Every edge of a job that waits says how its parent ended, and its wait is not over.
STRANDED = (
    "SELECT job.id FROM ready JOIN job USING (job_no)"
    " JOIN dependency e ON e.child_no = ready.job_no"
    " LEFT JOIN final f ON f.job_no = e.parent_no"
    " WHERE ready.blocked GROUP BY job.id, job.dependency_mode"
    " HAVING bool_or(e.outcome IS DISTINCT FROM coalesce(f.state, e.outcome))"
    " OR CASE job.dependency_mode WHEN 'AFTER_ANY'"
    " THEN bool_or(e.outcome = 'COMPLETED') OR bool_and(e.outcome IS NOT NULL)"
    " ELSE bool_and(e.outcome IS NOT NULL) OR bool_or(e.outcome <> 'COMPLETED') END"
)


def a_child(
    job_id: str,
    namespace: str,
    *parents: str,
    mode: DependencyMode = DependencyMode.AFTER,
    delay_s: float | None = None,
) -> Job:
    return Job(
        id=job_id,
        type="child",
        namespace=namespace,
        depends_on=parents,
        dependency_mode=mode,
        delay_s=delay_s,
    )


def a_parent(job_id: str, namespace: str) -> Job:
    return Job(id=job_id, type="parent", namespace=namespace)


async def claimed(
    backend: PostgresBackend, namespace: str, type_: str, limit: int = 1000
) -> dict[str, str]:
    """Tokens by id."""
    # What another process stored a moment ago is to be seen.
    backend._arrivals.hint()
    demand = Demand(assignee_id="w", limit=limit, namespace=namespace, types=frozenset({type_}))
    return {a.job_id: a.token for a in await backend.claim([demand], lease_ttl_s=TTL_S)}


async def end(
    backend: PostgresBackend, namespace: str, tokens: dict[str, str], event: Event
) -> list[Settled]:
    outcomes = [
        Outcome(
            job_id,
            event,
            namespace=namespace,
            token=token,
            result=job_id.encode() if event is Event.COMPLETE else None,
            error=DEADLY if event is Event.EXHAUST else None,
        )
        for job_id, token in tokens.items()
    ]
    return await backend.settle(outcomes)


async def states(backend: PostgresBackend, namespace: str, ids: Sequence[str]) -> list[JobState]:
    jobs = [await backend.get_job(job_id, namespace=namespace) for job_id in ids]
    return [job.state for job in jobs]


# A parent that is gone


async def test_a_child_runs_though_its_parent_was_deleted_before_it_was_due(
    backend: PostgresBackend, namespace: str, ask: Ask
) -> None:
    await backend.enqueue_job(a_parent("p", namespace))
    chain = DependencyMode.CHAIN
    await backend.enqueue_job(a_child("c", namespace, "p", mode=chain, delay_s=30.0))
    await end(backend, namespace, await claimed(backend, namespace, "parent"), Event.COMPLETE)
    assert await backend.cleanup_expired_jobs(1e-6, namespace=namespace) == 1
    assert await claimed(backend, namespace, "child") == {}
    await ask("UPDATE ready SET eligible_at = eligible_at - interval '30 s'")
    backend._staging.look_everywhere()
    demand = Demand(assignee_id="w", limit=1, namespace=namespace)
    assert await backend._staging.stage() != []
    backend._arrivals.hint()
    [assignment] = await backend.claim([demand], lease_ttl_s=TTL_S)
    assert (assignment.job_id, assignment.parent_result) == ("c", b"p")
    assert (await backend.get_job("c", namespace=namespace)).depends_on == ("p",)


@pytest.mark.parametrize("mode", DependencyMode)
async def test_a_parent_deleted_while_another_runs_strands_no_child(
    backend: PostgresBackend, namespace: str, ask: Ask, mode: DependencyMode
) -> None:
    await backend.enqueue_jobs([a_parent("p1", namespace), a_parent("p2", namespace)])
    tokens = await claimed(backend, namespace, "parent")
    await backend.enqueue_job(a_child("c", namespace, "p1", "p2", mode=mode))
    # Of a CHAIN, the last parent is the one whose output counts, and it goes first.
    for gone in ("p2", "p1"):
        await end(backend, namespace, {gone: tokens[gone]}, Event.COMPLETE)
        await backend.delete_jobs([], [gone], namespace=namespace)
    assert await ask(STRANDED) == []
    demand = Demand(assignee_id="w", limit=1, namespace=namespace)
    [assignment] = await backend.claim([demand], lease_ttl_s=TTL_S)
    inherited = b"p2" if mode is DependencyMode.CHAIN else None
    assert (assignment.job_id, assignment.parent_result) == ("c", inherited)


@pytest.mark.parametrize("gone", [True, False], ids=["removed", "never there"])
async def test_a_child_of_a_parent_that_does_not_exist_is_refused(
    backend: PostgresBackend, namespace: str, gone: bool
) -> None:
    await backend.enqueue_job(a_parent("other", namespace))
    if gone:
        await backend.enqueue_job(a_parent("p", namespace))
        await backend.cancel_jobs([], ["p"], namespace=namespace)
        await backend.delete_jobs([], ["p"], namespace=namespace)
    child = a_child("c", namespace, "other", "p")
    with pytest.raises(InvalidArgument) as raised:
        await backend.enqueue_job(child)
    assert raised.value.field == "depends_on[1]"
    with pytest.raises(InvalidArgument) as raised:
        await backend.enqueue_jobs([a_parent("x", namespace), child])
    assert raised.value.field == "jobs[1].depends_on[1]"
    stats = await backend.get_job_stats([], namespace=namespace)
    assert stats.total_jobs == 1


async def test_a_rejected_parent_takes_its_children_with_it_and_nobody_else(
    backend: PostgresBackend, namespace: str
) -> None:
    batch = [
        a_child("d", namespace, "c"),
        a_child("c", namespace, "nobody"),
        a_child("b", namespace, "a"),
        a_parent("a", namespace),
    ]
    answers = await backend.submit(batch, atomic=False)
    fields = [a.error.field if isinstance(a.error, InvalidArgument) else None for a in answers]
    assert fields == ["jobs[0].depends_on[0]", "jobs[1].depends_on[0]", None, None]
    assert (await backend.get_job_stats([], namespace=namespace)).total_jobs == 2


# A parent that ends at this very moment


@pytest.mark.parametrize(
    ("event", "after"),
    [(Event.COMPLETE, JobState.INITIAL_PENDING), (Event.EXHAUST, JobState.UNSCHEDULED)],
)
async def test_a_parent_that_ends_while_its_child_is_submitted_is_never_missed(
    replicas: list[PostgresBackend], namespace: str, ask: Ask, event: Event, after: JobState
) -> None:
    first, second, third = replicas
    for n in range(rounds(short=100, long=1000)):
        await first.enqueue_job(a_parent(f"p{n}", namespace))
        tokens = await claimed(first, namespace, "parent")
        # By the fast path of the process that claimed it and by the slow one of another.
        ending = first if n % 2 else third
        tries = [
            second.enqueue_job(a_child(f"c{n}", namespace, f"p{n}")),
            end(ending, namespace, tokens, event),
        ]
        answers = await asyncio.gather(*(tries if n % 3 else reversed(tries)))
        assert f"c{n}" in answers
        assert await states(second, namespace, [f"c{n}"]) == [after]
        runs = await claimed(third, namespace, "child")
        assert set(runs) == ({f"c{n}"} if event is Event.COMPLETE else set())
        await end(third, namespace, runs, Event.COMPLETE)
    assert await ask(STRANDED) == []


@pytest.mark.parametrize("first_in_line", ["child", "outcome"])
async def test_whoever_gets_the_lock_of_the_parent_first_the_child_is_let_go(
    backend: PostgresBackend, namespace: str, ask: Ask, dsn: str, first_in_line: str
) -> None:
    await backend.enqueue_job(a_parent("p", namespace))
    tokens = await claimed(backend, namespace, "parent")
    calls = [
        lambda: backend.enqueue_job(a_child("c", namespace, "p")),
        lambda: end(backend, namespace, tokens, Event.COMPLETE),
    ]
    waiting = []
    await ask("BEGIN")
    await ask("SELECT FROM lease FOR UPDATE")
    for call in calls if first_in_line == "child" else reversed(calls):
        waiting.append(asyncio.create_task(call()))
        await until_waiting(dsn, len(waiting))
    await ask("COMMIT")
    await asyncio.gather(*waiting)
    assert set(await claimed(backend, namespace, "child")) == {"c"}


@pytest.mark.parametrize("mode", DependencyMode)
async def test_parents_that_end_at_once_on_several_replicas_let_their_child_go_once(
    replicas: list[PostgresBackend], namespace: str, ask: Ask, mode: DependencyMode
) -> None:
    for n in range(rounds(short=20, long=300)):
        ids = [f"p{n}-{k}" for k in range(6)]
        await replicas[0].enqueue_jobs([a_parent(job_id, namespace) for job_id in ids])
        tokens = await claimed(replicas[0], namespace, "parent")
        await replicas[1].enqueue_job(a_child(f"c{n}", namespace, *ids, mode=mode))
        ends = [
            end(replicas[k % 3], namespace, {job_id: tokens[job_id]}, Event.COMPLETE)
            for k, job_id in enumerate(ids)
        ]
        await asyncio.gather(*ends)
        assert await ask(STRANDED) == []
        demand = Demand(assignee_id="w", limit=2, namespace=namespace)
        [assignment] = await replicas[2].claim([demand], lease_ttl_s=TTL_S)
        inherited = ids[-1].encode() if mode is DependencyMode.CHAIN else None
        assert (assignment.job_id, assignment.parent_result) == (f"c{n}", inherited)
        await end(replicas[2], namespace, {f"c{n}": assignment.token}, Event.COMPLETE)


# All that follows


async def test_a_parent_that_ends_badly_skips_all_below_it_in_one_transaction(
    backend: PostgresBackend, namespace: str, ask: Ask
) -> None:
    depth, width = 40, 30
    chain = [a_child(f"d{n}", namespace, f"d{n - 1}" if n else "p") for n in range(depth)]
    below = [a_child(f"w{n}", namespace, "d0", f"d{n}") for n in range(1, width)]
    batch = [*chain, *below]
    random.shuffle(batch)
    await backend.enqueue_jobs([*batch, a_parent("p", namespace)])
    assert await claimed(backend, namespace, "child") == {}
    await end(backend, namespace, await claimed(backend, namespace, "parent"), Event.EXHAUST)
    by_state = (await backend.get_job_stats([], namespace=namespace)).by_state
    assert {state: n for state, n in by_state.items() if n} == {
        JobState.DEAD_LETTER: 1,
        JobState.UNSCHEDULED: depth + width - 1,
    }
    at = await ask(
        "SELECT count(DISTINCT finalized_at), count(DISTINCT reason) FROM final f"
        " JOIN job USING (job_no) WHERE job.id <> 'p' AND f.lane_id IN"
        " (SELECT lane_id FROM job WHERE id = 'd0')"
    )
    assert at == [(1, 1)]
    last = await backend.get_job("d9", namespace=namespace)
    assert (last.reason, last.cancel_reason) == ("SKIP", "parent 'd8' ended as UNSCHEDULED")


async def test_jobs_of_a_batch_are_numbered_in_their_order_whoever_waits_for_whom(
    backend: PostgresBackend, namespace: str, ask: Ask
) -> None:
    batch = [a_child(f"{n}", namespace, f"{n + 1}") for n in range(50)]
    await backend.enqueue_jobs([*batch, a_parent("50", namespace)])
    rows = await ask(
        "SELECT job.id FROM job JOIN namespace ON namespace.id = namespace_id"
        " WHERE namespace.name = %s ORDER BY job_no",
        namespace,
    )
    assert [job_id for (job_id,) in rows] == [f"{n}" for n in range(51)]


async def test_a_family_that_is_cancelled_failed_and_completed_at_once_stays_whole(
    replicas: list[PostgresBackend],
    namespace: str,
    ask: Ask,
    no_deadlock: Callable[[], None],
) -> None:
    """Locks are taken across the levels in every order, and nobody is told of a deadlock."""
    for n in range(rounds(short=25, long=400)):
        batch, ids = _family(n, namespace)
        await replicas[0].enqueue_jobs(batch)
        parents = await claimed(replicas[0], namespace, "parent")
        names = random.sample(sorted(parents), len(parents))
        third = len(names) // 3
        answers = await asyncio.gather(
            end(replicas[0], namespace, _some(parents, names[:third]), Event.COMPLETE),
            end(replicas[1], namespace, _some(parents, names[third:]), Event.EXHAUST),
            *(
                replica.cancel_jobs([], random.sample(ids, len(ids) // 2), namespace=namespace)
                for replica in replicas
            ),
            replicas[2].submit([a_child(f"late{n}", namespace, *names[:4])], atomic=False),
            replicas[1].delete_jobs([], names[:2], namespace=namespace),
            return_exceptions=True,
        )
        assert [a for a in answers if isinstance(a, BaseException) and not _allowed(a)] == []
        no_deadlock()
        assert await ask(STRANDED) == []
        await replicas[0].cancel_jobs([], ids, namespace=namespace)


def _family(n: int, namespace: str) -> tuple[list[Job], list[str]]:
    parents = [a_parent(f"{n}p{k}", namespace) for k in range(9)]
    children = [
        a_child(
            f"{n}c{k}",
            namespace,
            *(p.id for p in random.sample(parents, 3)),
            mode=random.sample(list(DependencyMode), 1)[0],
        )
        for k in range(12)
    ]
    grandchildren = [
        a_child(f"{n}g{k}", namespace, *(c.id for c in random.sample(children, 2)))
        for k in range(8)
    ]
    batch = [*parents, *children, *grandchildren]
    random.shuffle(batch)
    return batch, [job.id for job in batch]


def _some(tokens: dict[str, str], names: list[str]) -> dict[str, str]:
    return {name: tokens[name] for name in names}


def _allowed(error: BaseException) -> bool:
    # A parent that is not terminal cannot be deleted.
    return isinstance(error, QueueError) and error.code == "INVALID_TRANSITION"


async def test_jobs_without_parents_and_children_pay_nothing_for_those_that_have_some(
    dsn: str, namespace: str
) -> None:
    async with watched(dsn, plans="auto") as (backend, seen):
        await backend.enqueue_jobs([a_parent(f"{n}", namespace) for n in range(4)])
        await backend.enqueue_job(a_parent("4", namespace))
        tokens = await claimed(backend, namespace, "parent")
        for n, event in enumerate([Event.COMPLETE, Event.FAIL, Event.EXHAUST, Event.STOP]):
            await end(backend, namespace, {f"{n}": tokens[f"{n}"]}, event)
        await backend.cancel_jobs([], ["4"], namespace=namespace)
        await backend.get_job("0", namespace=namespace)
        assert _touched(seen) & {"dependency", "parent_result"} == set()
        await backend.enqueue_job(a_child("child", namespace, "0"))
        assert "dependency" in _touched(seen)


def _touched(seen: Watched) -> set[str]:
    nodes = [node for plan in seen.plans for node in plan.nodes if node["Actual Loops"]]
    return {node["Relation Name"] for node in nodes if "Relation Name" in node}
