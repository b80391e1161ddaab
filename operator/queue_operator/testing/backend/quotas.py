"""What quotas are compared with: how much a namespace holds, and tokens that replicas share."""

import asyncio
from itertools import count
from typing import Any

import pytest

from queue_operator.backends.protocol import Usage, Usages
from queue_operator.domain.errors import InvalidArgument
from queue_operator.domain.job import Demand
from queue_operator.domain.states import JobState
from queue_operator.testing.driving import a_job, job_in
from queue_operator.testing.store import TTL_S, Contract, Store
from queue_operator.testing.walking import walk

_SLOW = 0.001
"""Tokens per second: fewer than one in the time of a test."""


def _usages(backend: Contract) -> Usages:
    assert isinstance(backend, Usages)
    return backend


async def _take(backend: Contract, amount: float, **rate: float) -> float:
    given = {"rate_per_s": _SLOW, "burst": 10.0, **rate}
    return await _usages(backend).take_tokens("team/jobs", amount, **given)


async def test_usage_counts_what_waits_and_what_runs(backend: Contract) -> None:
    for state in JobState:
        await job_in(backend, state)
    parent = a_job()
    await backend.enqueue_jobs(
        [parent, a_job(depends_on=(parent.id,)), a_job(delay_s=60.0), a_job(namespace="other")]
    )
    found = await _usages(backend).usage_of(["default", "other", "nobody"])
    assert found == {
        # Beside those of the three states that wait.
        "default": Usage(pending=3 + 3, running=2),
        "other": Usage(pending=1),
        "nobody": Usage(),
    }


async def test_usage_of_nothing_is_nothing(backend: Contract) -> None:
    assert await _usages(backend).usage_of([]) == {}


async def test_usage_falls_when_jobs_go_on(backend: Contract) -> None:
    await backend.enqueue_jobs([a_job() for _ in range(3)])
    await backend.claim([Demand(assignee_id="w", limit=2)], lease_ttl_s=TTL_S)
    [used] = (await _usages(backend).usage_of(["default"])).values()
    assert used == Usage(pending=1, running=2)


async def test_tokens_are_taken_until_there_are_none(backend: Contract) -> None:
    assert [await _take(backend, 4.0) for _ in range(2)] == [0.0, 0.0]
    lacking_s = await _take(backend, 4.0)
    assert 1900 < lacking_s <= 2000
    assert await _take(backend, 2.0) == 0.0
    assert 900 < await _take(backend, 1.0) <= 1000


async def test_tokens_come_back_with_time(backend: Contract) -> None:
    assert await _take(backend, 10.0) == 0.0
    # At a million a second the next call finds it full again, and no fuller.
    fast = {"rate_per_s": 1e6}
    while await _take(backend, 10.0, **fast):
        pass
    assert await _take(backend, 10.0, rate_per_s=1e-6) > 0.0


async def test_more_than_a_full_bucket_is_on_credit(backend: Contract) -> None:
    assert await _take(backend, 1.0) == 0.0
    assert 900 < await _take(backend, 25.0) <= 1000
    assert await _usages(backend).take_tokens("new", 25.0, rate_per_s=_SLOW, burst=10.0) == 0.0
    lacking_s = await _usages(backend).take_tokens("new", 1.0, rate_per_s=_SLOW, burst=10.0)
    assert 15_900 < lacking_s <= 16_000


async def test_all_replicas_take_from_one_bucket(backend: Contract, store: Store) -> None:
    other = await store.open()
    answers = await asyncio.gather(
        *(_take(one, 1.0) for _ in range(10) for one in (backend, other))
    )
    assert sorted(answers)[:10] == [0.0] * 10
    assert min(sorted(answers)[10:]) > 0


async def test_buckets_have_nothing_to_do_with_each_other(backend: Contract) -> None:
    assert await _take(backend, 10.0) == 0.0
    other = await _usages(backend).take_tokens("other", 10.0, rate_per_s=_SLOW, burst=10.0)
    assert other == 0.0


async def test_tokens_can_be_given_back(backend: Contract) -> None:
    terms = {"rate_per_s": _SLOW, "burst": 10.0}
    for _ in range(3):
        assert await _take(backend, 25.0) == 0.0
        await _usages(backend).return_tokens("team/jobs", 5.0, **terms)
        # Still in debt.
        assert 10_900 < await _take(backend, 1.0) <= 11_000
        await _usages(backend).return_tokens("team/jobs", 20.0, **terms)
    await _usages(backend).return_tokens("team/jobs", 7.0, **terms)
    assert await _take(backend, 10.0) == 0.0
    assert await _take(backend, 1.0) > 0.0


async def test_tokens_given_to_a_new_bucket_are_no_more_than_it_holds(backend: Contract) -> None:
    await _usages(backend).return_tokens("team/jobs", 5.0, rate_per_s=_SLOW, burst=10.0)
    assert await _take(backend, 10.0) == 0.0
    assert await _take(backend, 1.0) > 0.0


async def test_taken_keys_are_those_of_jobs_that_are_stored(backend: Contract) -> None:
    await backend.submit(
        [
            a_job(idempotency_key="a"),
            a_job(idempotency_key="b"),
            a_job(idempotency_key="c", namespace="other"),
        ]
    )
    ended = a_job(idempotency_key="gone")
    await backend.enqueue_job(ended)
    await backend.cancel_jobs((), [ended.id])
    asked = [("default", key) for key in ("a", "b", "c", "gone", "z")]
    asked += [("other", "a"), ("other", "c"), ("nobody", "a")]
    expected = {("default", "a"), ("default", "b"), ("default", "gone"), ("other", "c")}
    assert set(await _usages(backend).taken_keys(asked)) == expected
    await backend.delete_jobs((), [ended.id])
    assert set(await _usages(backend).taken_keys(asked)) == expected - {("default", "gone")}
    assert not await _usages(backend).taken_keys([])


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"amount": 0.0}, "amount"),
        ({"amount": float("nan")}, "amount"),
        ({"rate_per_s": -1.0}, "rate_per_s"),
        ({"burst": float("inf")}, "burst"),
        ({"burst": "10"}, "burst"),
        ({"amount": 10**400}, "amount"),
        # Times the seconds that have passed they are too small, or too large, for any number.
        ({"rate_per_s": 5e-324}, "rate_per_s"),
        ({"rate_per_s": 1e308}, "rate_per_s"),
        ({"burst": True}, "burst"),
        ({"bucket": ""}, "bucket"),
    ],
)
async def test_tokens_that_are_none_are_refused(
    backend: Contract, fields: dict[str, Any], field: str
) -> None:
    given = {"bucket": "b", "amount": 1.0, "rate_per_s": 1.0, "burst": 1.0, **fields}
    with pytest.raises(InvalidArgument) as refused:
        await _usages(backend).take_tokens(**given)
    assert refused.value.field == field
    with pytest.raises(InvalidArgument) as refused:
        await _usages(backend).return_tokens(**given)
    assert refused.value.field == field


async def test_keys_that_are_none_are_refused(backend: Contract) -> None:
    for key, field in ((("", "a"), "namespaces"), (("default", ""), "keys")):
        with pytest.raises(InvalidArgument) as refused:
            await _usages(backend).taken_keys([key])
        assert refused.value.field == field
    wrong: Any
    for wrong in (None, 7, "x", [7], [("default",)]):
        with pytest.raises(InvalidArgument) as refused:
            await _usages(backend).taken_keys(wrong)
        assert refused.value.field == "keys"


async def test_a_cancelled_take_took_its_tokens_once_or_not_at_all(backend: Contract) -> None:
    """It is not undone: they come back with time, as all that were taken."""
    names = count()

    async def bring() -> str:
        return f"cancelled {next(names)}"

    async def call(bucket: str) -> float:
        return await _usages(backend).take_tokens(bucket, 4.0, rate_per_s=_SLOW, burst=10.0)

    async for one in walk(bring, call):
        waits = [await call(one.subject) > 0 for _ in range(3)]
        assert waits in ([False, True, True], [False, False, True]), one
        assert one.cancelled or waits[1], one


async def test_a_cancelled_return_gives_its_tokens_back_once_or_not_at_all(
    backend: Contract,
) -> None:
    names = count()

    async def take(bucket: str, amount: float) -> bool:
        """Whether they were there."""
        usages = _usages(backend)
        return await usages.take_tokens(bucket, amount, rate_per_s=_SLOW, burst=10.0) == 0

    async def bring() -> str:
        bucket = f"returned {next(names)}"
        assert await take(bucket, 10.0)
        return bucket

    async def call(bucket: str) -> None:
        await _usages(backend).return_tokens(bucket, 4.0, rate_per_s=_SLOW, burst=10.0)

    async for one in walk(bring, call):
        there = [await take(one.subject, 4.0) for _ in range(2)]
        assert there in ([True, False], [False, False]), one
        assert one.cancelled or there[0], one
