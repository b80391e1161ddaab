"""Calls that race for the same jobs, each on connections of its own."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable

import pytest
from tests.integration.postgres.conftest import Ask
from tests.integration.postgres.lengths import rounds
from tests.integration.postgres.locking import until_waiting

from queue_operator.backends.postgres import PostgresBackend, rows
from queue_operator.backends.protocol import Freed
from queue_operator.domain.errors import DuplicateJob, InvalidTransition, StaleLease, Unavailable
from queue_operator.domain.job import Assignment, Demand, Job
from queue_operator.domain.lease import Held
from queue_operator.domain.outcome import ErrorInfo, Outcome
from queue_operator.domain.states import SLOT_HOLDING, Event

JOBS = 12
# So short that the sweeper finds every lease expired.
TTL_S = 0.000001
# A sweep that comes later than this after the one before takes it for an outage.
SWEEP_S = 600.0


async def _settle(
    backend: PostgresBackend, claimed: list[Assignment], namespace: str, event: Event
) -> Freed:
    outcomes = [
        Outcome(a.job_id, event, namespace=namespace, token=a.token, error=ErrorInfo("x"))
        for a in random.sample(claimed, len(claimed))
    ]
    freed: Counter[str] = Counter()
    for answer in await backend.settle(outcomes):
        assert answer.error is None or isinstance(answer.error, InvalidTransition | StaleLease)
        if answer.freed_assignee_id:
            freed[answer.freed_assignee_id] += 1
    return freed


async def _cancel(backend: PostgresBackend, ids: list[str], namespace: str) -> Freed:
    shuffled = random.sample(ids, len(ids))
    answer = await backend.cancel_jobs([], shuffled, namespace=namespace, force=True)
    assert len(answer.cancelled_job_ids) + len(answer.unknown_job_ids) == len(ids)
    return {}


async def _sweep(backend: PostgresBackend) -> Freed:
    lost = await backend.expire_leases(lease_ttl_s=SWEEP_S)
    return Counter(one.assignee_id for one in lost)


async def _extend(backend: PostgresBackend, claimed: list[Assignment], namespace: str) -> Freed:
    held = [Held(a.job_id, a.token, namespace) for a in random.sample(claimed, len(claimed))]
    assert len(await backend.extend_leases(held, lease_ttl_s=TTL_S)) == len(held)
    return {}


async def test_no_deadlock_no_lost_job_and_no_slot_freed_twice(
    replicas: list[PostgresBackend], namespace: str, ask: Ask
) -> None:
    first, second, third = replicas
    for round_ in range(rounds(short=60, long=10_000)):
        ids = [f"{round_}-{n}" for n in range(JOBS)]
        worker = f"w-{namespace}-{round_}"
        await first.enqueue_jobs([Job(id=i, type="t", namespace=namespace) for i in ids])
        demand = Demand(assignee_id=worker, limit=JOBS, namespace=namespace)
        claimed = await first.claim([demand], lease_ttl_s=TTL_S)
        assert len(claimed) == JOBS
        half = claimed[: JOBS // 2]
        freed = await asyncio.gather(
            _settle(first, claimed, namespace, Event.COMPLETE),
            _cancel(second, ids, namespace),
            _sweep(third),
            _settle(third, half, namespace, Event.FAIL),
            _extend(second, claimed, namespace),
            first.mark_worker_unresponsive(worker),
        )
        total = Counter[str]()
        for one in freed:
            total.update({assignee: n for assignee, n in one.items() if assignee == worker})
        jobs = [await first.get_job(i, namespace=namespace) for i in ids]
        still = sum(job.state in SLOT_HOLDING for job in jobs)
        assert total[worker] == JOBS - still
        await _end_all(first, ids, namespace)
    lost = await ask(
        "SELECT count(*) FROM job"
        " WHERE (SELECT count(*) FROM ready WHERE ready.job_no = job.job_no)"
        " + (SELECT count(*) FROM lease WHERE lease.job_no = job.job_no)"
        " + (SELECT count(*) FROM final WHERE final.job_no = job.job_no) <> 1"
    )
    assert lost == [(0,)]


async def _end_all(backend: PostgresBackend, ids: list[str], namespace: str) -> None:
    await backend.cancel_jobs([], ids, namespace=namespace)
    stop = [Outcome(i, Event.STOP, namespace=namespace) for i in ids]
    await backend.settle(stop)


@pytest.mark.parametrize("others", [0, 100], ids=["inserted", "copied"])
async def test_batches_with_the_same_ids_in_other_orders_do_not_deadlock(
    replicas: list[PostgresBackend],
    namespace: str,
    ask: Ask,
    dsn: str,
    no_deadlock: Callable[[], None],
    others: int,
) -> None:
    """Both stop at the id in the middle. Had each taken those before it as they came, they would
    now wait for each other.
    """
    await replicas[0].enqueue_job(Job(id="m", type="t", namespace=namespace))
    newest = "SELECT * FROM job WHERE id = 'm' ORDER BY job_no DESC LIMIT 1"
    await ask("CREATE TEMP TABLE held AS " + newest)
    await ask("DELETE FROM job WHERE job_no = (SELECT job_no FROM held)")
    await ask("DELETE FROM ready WHERE job_no = (SELECT job_no FROM held)")
    await ask("DELETE FROM count_delta WHERE lane_id = (SELECT lane_id FROM held)")
    await ask("BEGIN")
    await ask("INSERT INTO job SELECT * FROM held")
    more = [f"n{n}" for n in range(others)]
    orders = [["a", "m", *more, "z"], ["z", *more, "m", "a"], ["m", "z", "a", *more]]
    tries = [
        asyncio.create_task(
            replica.enqueue_jobs([Job(id=i, type="t", namespace=namespace) for i in order])
        )
        for replica, order in zip(replicas, orders, strict=True)
    ]
    await until_waiting(dsn, 3)
    await ask("ROLLBACK")
    answers = await asyncio.gather(*tries, return_exceptions=True)
    no_deadlock()
    refused = [answer for answer in answers if isinstance(answer, DuplicateJob)]
    assert [sorted(error.job_ids) for error in refused] == [sorted(orders[0])] * 2
    stats = await replicas[0].get_job_stats([], namespace=namespace)
    assert stats.total_jobs == 3 + others
    await ask("DROP TABLE held")


async def test_two_cancels_of_the_same_jobs_in_opposite_order_do_not_deadlock(
    replicas: list[PostgresBackend], namespace: str
) -> None:
    for round_ in range(rounds(short=60, long=10_000)):
        ids = [f"c{round_}-{n}" for n in range(JOBS)]
        await replicas[0].enqueue_jobs([Job(id=i, type="t", namespace=namespace) for i in ids])
        demand = Demand(assignee_id="w", limit=JOBS // 2, namespace=namespace)
        answers = await asyncio.gather(
            replicas[0].cancel_jobs([], ids, namespace=namespace),
            replicas[1].cancel_jobs([], ids[::-1], namespace=namespace),
            replicas[2].claim([demand], lease_ttl_s=60),
        )
        for cancelled in answers[:2]:
            known = len(cancelled.cancelled_job_ids) + len(cancelled.unknown_job_ids)
            assert known == JOBS
        await _end_all(replicas[0], ids, namespace)


@pytest.mark.parametrize("tries", [1, 20])
async def test_a_job_that_moves_while_we_wait_for_it_is_not_missing(
    replicas: list[PostgresBackend],
    namespace: str,
    ask: Ask,
    dsn: str,
    monkeypatch: pytest.MonkeyPatch,
    tries: int,
) -> None:
    monkeypatch.setattr(rows, "_LOCK_ATTEMPTS", tries)
    await replicas[0].enqueue_job(Job(id="a", type="t", namespace=namespace))
    await ask("BEGIN")
    await ask(
        "WITH gone AS (DELETE FROM ready WHERE job_no = (SELECT max(job_no) FROM job) RETURNING *)"
        " INSERT INTO ready SELECT * FROM gone"
    )
    cancel = asyncio.create_task(replicas[1].cancel_jobs([], ["a"], namespace=namespace))
    await until_waiting(dsn, 1)
    await ask("COMMIT")
    if tries == 1:
        with pytest.raises(Unavailable, match="1 jobs are being moved"):
            await cancel
    else:
        assert (await cancel).cancelled_job_ids == ("a",)
