"""What the store refuses is told as without quotas, and uses nothing of them."""

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.queue.conftest import ManualClock
from tests.unit.queue.counting import Counting, Limited, jobs, keyed

from queue_operator.domain.errors import InvalidArgument, KeyConflict, QuotaExceeded
from queue_operator.queue.quotas import Quotas
from queue_operator.queue.service import QueueService
from queue_operator.settings import Quota, QuotaSettings

BAD_KEYS: list[Any] = ["k" * 300, "k\0", 7, ["k"]]


async def test_a_bad_key_is_told_by_its_job_though_the_namespace_is_full(
    limited: Limited, backend: Counting
) -> None:
    queue = limited(pending_jobs=2)
    [first, _] = await queue.enqueue_jobs(keyed("a", "b"))
    mixed = [
        *keyed("a", "new"),
        *(replace(job, idempotency_key=key) for key in BAD_KEYS for job in jobs(1)),
        *keyed(*BAD_KEYS[:1], "free", namespace="unlimited"),
        *jobs(1, namespace="n" * 300),
    ]
    answers = await queue.submit(mixed, atomic=False)
    assert answers[0].job_id == first
    assert answers[0].duplicate
    assert isinstance(answers[1].error, QuotaExceeded)
    told = [one.error.field for one in answers[2:] if isinstance(one.error, InvalidArgument)]
    keys = [f"jobs[{n}].idempotency_key" for n in range(2, 7)]
    assert told == [*keys, "jobs[8].namespace"]
    assert answers[7].error is None
    assert backend.asked_keys == {("team", "a"), ("team", "new")}


@pytest.mark.parametrize("keys", [False, True])
async def test_what_the_store_refuses_costs_no_tokens(limited: Limited, keys: bool) -> None:
    queue = limited(pending_jobs=10, submissions_per_s=10.0, payload_bytes_per_s=1000.0)
    for n in range(3):
        batch = [
            replace(job, idempotency_key=f"{n}-{place}" if keys else "")
            for place, job in enumerate(jobs(9, payload=bytes(100)))
        ]
        with pytest.raises(InvalidArgument, match="priority"):
            await queue.submit([*batch, *jobs(1, priority="no such")])
        answers = await queue.submit(jobs(10, priority="no such"), atomic=False)
        assert not any(isinstance(one.error, QuotaExceeded) for one in answers)
    await queue.enqueue_jobs(jobs(10))
    with pytest.raises(QuotaExceeded):
        await queue.enqueue_jobs(jobs(1))


async def test_conflicts_of_keys_cost_no_tokens(limited: Limited) -> None:
    queue = limited(submissions_per_s=0.01, submissions_burst=5)
    await queue.enqueue_jobs(keyed("a"))
    for _ in range(20):
        with pytest.raises(KeyConflict):
            await queue.enqueue_job(*keyed("a", payload=b"2"))
        with pytest.raises(KeyConflict):
            await queue.enqueue_jobs([*jobs(1), *keyed("a", payload=b"2")])
        [answer] = await queue.submit(keyed("a", payload=b"2"), atomic=False)
        assert isinstance(answer.error, KeyConflict)
    await queue.enqueue_jobs(jobs(4))


async def test_a_batch_that_one_namespace_refuses_costs_the_other_nothing(
    backend: Counting, clock: ManualClock
) -> None:
    quota = Quota(submissions_per_s=0.01, submissions_burst=5)
    quotas = QuotaSettings(namespaces={"a": quota, "b": Quota(pending_jobs=1)})
    queue = QueueService(backend, clock=clock, quotas=quotas)
    await queue.enqueue_jobs(jobs(1, namespace="b"))
    for _ in range(5):
        with pytest.raises(QuotaExceeded):
            await queue.submit([*jobs(5, namespace="a"), *jobs(1, namespace="b")])
    await queue.enqueue_jobs(jobs(5, namespace="a"))
    await queue.stop()


async def test_what_the_store_refuses_of_a_batch_takes_no_room(
    backend: Counting, clock: ManualClock
) -> None:
    quotas = Quotas(backend, QuotaSettings(default=Quota(pending_jobs=3)), clock)
    given = jobs(2, priority="no such")
    for _ in range(3):
        async with quotas.admitting(given, whole=False) as admission:
            admission.answered(await backend.submit(given, atomic=False))
        assert await quotas.room(["team"]) == {"team": 3}
