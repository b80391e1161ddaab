"""Quotas at the queue's own door: what is admitted, what runs, and what it costs the store."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.queue.conftest import ManualClock
from tests.unit.queue.counting import Counting, Limited, jobs, keyed
from tests.waiting import DEADLINE_S

from queue_operator.domain.errors import InvalidArgument, KeyConflict, QuotaExceeded, Unavailable
from queue_operator.domain.job import Demand
from queue_operator.domain.outcome import Outcome
from queue_operator.domain.states import Event
from queue_operator.queue.protocol import StreamSpec
from queue_operator.queue.quotas import FRESH_S, Quotas
from queue_operator.queue.service import QueueService
from queue_operator.queue.stream import JobStream
from queue_operator.settings import Quota, QuotaSettings
from queue_operator.testing.clauses import proves


async def pending(backend: Counting) -> int:
    return (await backend.usage_of(["team"]))["team"].pending


async def test_without_quotas_nothing_is_asked_of_the_store(
    backend: Counting, clock: ManualClock
) -> None:
    queue = QueueService(backend, clock=clock)
    await queue.enqueue_jobs(jobs(10))
    await queue.submit(jobs(10), atomic=False)
    assert (backend.looks, backend.takes) == (0, 0)
    await queue.stop()


@proves(
    "external-api.QuotaError.rule.1",
    "external-api.QuotaError.rule.2",
    "external-api.QuotaError.rule.3",
    "external-api.QuotaError.rule.4",
    "external-api.QuotaError.expect.1",
)
async def test_more_than_may_wait_is_refused(limited: Limited, backend: Counting) -> None:
    queue = limited(pending_jobs=5)
    await queue.enqueue_jobs(jobs(3))
    with pytest.raises(QuotaExceeded) as refused:
        await queue.enqueue_jobs(jobs(3))
    assert refused.value.limit == "pending_jobs"
    assert (refused.value.current, refused.value.maximum) == (3, 5)
    assert refused.value.retry_after_s
    await queue.submit(jobs(1))
    await queue.enqueue_job(*jobs(1))
    with pytest.raises(QuotaExceeded):
        await queue.enqueue_job(*jobs(1))
    assert await pending(backend) == 5


async def test_of_a_batch_that_is_not_atomic_the_first_fit(
    limited: Limited, backend: Counting
) -> None:
    queue = limited(pending_jobs=3)
    mixed = [*jobs(2), *jobs(2, "other"), *jobs(3)]
    answers = await queue.submit(mixed, atomic=False)
    refused = [isinstance(answer.error, QuotaExceeded) for answer in answers]
    assert refused == [False] * 5 + [True] * 2
    assert [answer.job_id for answer in answers] == [job.id for job in mixed]
    assert await pending(backend) == 3


async def test_other_namespaces_are_not_limited(limited: Limited) -> None:
    queue = limited(pending_jobs=1)
    await queue.enqueue_jobs(jobs(50, "other"))


async def test_a_named_namespace_has_nothing_of_the_default(
    backend: Counting, clock: ManualClock
) -> None:
    quotas = QuotaSettings(default=Quota(pending_jobs=2), namespaces={"team": Quota()})
    queue = QueueService(backend, clock=clock, quotas=quotas)
    await queue.enqueue_jobs(jobs(5))
    with pytest.raises(QuotaExceeded):
        await queue.enqueue_jobs(jobs(3, "other"))
    await queue.stop()


async def test_children_count(limited: Limited, backend: Counting, clock: ManualClock) -> None:
    """Whatever came in past the door."""
    queue = limited(pending_jobs=5)
    await queue.enqueue_jobs(jobs(1))
    await backend.enqueue_jobs(jobs(4))
    clock.now_s += FRESH_S
    with pytest.raises(QuotaExceeded) as refused:
        await queue.enqueue_jobs(jobs(1))
    assert refused.value.current == 5


async def test_what_was_taken_makes_room(
    limited: Limited, backend: Counting, clock: ManualClock
) -> None:
    queue = limited(pending_jobs=2)
    await queue.enqueue_jobs(jobs(2))
    await backend.dequeue_jobs("w", [], 1, namespace="team")
    clock.now_s += FRESH_S
    await queue.enqueue_jobs(jobs(1))
    with pytest.raises(QuotaExceeded):
        await queue.enqueue_jobs(jobs(1))


async def test_callers_at_once_do_not_pass_the_limit(limited: Limited, backend: Counting) -> None:
    queue = limited(pending_jobs=30, submissions_per_s=1000.0)
    answers = await asyncio.gather(
        *(queue.enqueue_job(job) for job in jobs(50)), return_exceptions=True
    )
    assert sum(isinstance(answer, QuotaExceeded) for answer in answers) == 20
    assert await pending(backend) == 30


async def test_what_the_store_refuses_takes_no_room(limited: Limited) -> None:
    queue = limited(pending_jobs=3)
    [first] = jobs(1)
    await queue.enqueue_job(first)
    for _ in range(5):
        with pytest.raises(InvalidArgument):
            await queue.enqueue_jobs([*jobs(1), first])
    await queue.enqueue_jobs(jobs(2))


async def test_a_store_that_is_away_takes_no_room(
    limited: Limited, backend: Counting, clock: ManualClock
) -> None:
    queue = limited(pending_jobs=3)
    await queue.enqueue_jobs(jobs(1))
    for age_s in (0.0, FRESH_S):
        clock.now_s += age_s
        backend.shelf.reachable = False
        for _ in range(3):
            with pytest.raises(Unavailable):
                await queue.enqueue_jobs(jobs(2))
        backend.shelf.reachable = True
    await queue.enqueue_jobs(jobs(2))
    with pytest.raises(QuotaExceeded):
        await queue.enqueue_jobs(jobs(1))


async def test_what_is_no_job_is_refused_as_without_quotas(limited: Limited) -> None:
    queue = limited(pending_jobs=3, payload_bytes_per_s=10.0)
    wrong: Any = ["no job"]
    with pytest.raises(InvalidArgument):
        await queue.enqueue_jobs(wrong)
    with pytest.raises(InvalidArgument):
        await queue.enqueue_jobs(jobs(1, payload="text"))


async def test_a_look_at_the_store_serves_many_callers(limited: Limited, backend: Counting) -> None:
    queue = limited(pending_jobs=10_000)
    for job in jobs(200):
        await queue.enqueue_job(job)
    assert backend.looks == 1


@proves("external-api.QuotaError.expect.1")
async def test_submissions_per_second(limited: Limited, clock: ManualClock) -> None:
    queue = limited(submissions_per_s=10.0, submissions_burst=20)
    await queue.enqueue_jobs(jobs(20))
    with pytest.raises(QuotaExceeded) as refused:
        await queue.enqueue_jobs(jobs(5))
    assert (refused.value.limit, refused.value.maximum) == ("submissions_per_s", 10)
    assert refused.value.retry_after_s == pytest.approx(0.5)
    clock.now_s += refused.value.retry_after_s or 0.0
    await queue.enqueue_jobs(jobs(5))
    with pytest.raises(QuotaExceeded):
        await queue.enqueue_jobs(jobs(1))


async def test_of_a_crowd_those_are_taken_for_whom_there_are_tokens(
    limited: Limited, backend: Counting, clock: ManualClock
) -> None:
    queue = limited(submissions_per_s=10.0)
    await queue.enqueue_jobs(jobs(10))
    clock.now_s += 0.55
    answers = await queue.submit(jobs(8), atomic=False)
    assert [answer.error is None for answer in answers] == [True] * 5 + [False] * 3
    clock.now_s += 0.05
    with pytest.raises(QuotaExceeded):
        await queue.submit(jobs(2))
    assert await pending(backend) == 15


@proves("external-api.QuotaError.expect.1")
async def test_bytes_of_payload_per_second(limited: Limited, clock: ManualClock) -> None:
    queue = limited(payload_bytes_per_s=1000.0)
    await queue.enqueue_jobs(jobs(4, payload=bytes(250)))
    await queue.enqueue_jobs(jobs(3, payload=b""))
    with pytest.raises(QuotaExceeded) as refused:
        await queue.enqueue_jobs(jobs(1, payload=bytes(250)))
    assert refused.value.limit == "payload_bytes_per_s"
    assert refused.value.retry_after_s == pytest.approx(0.25)
    clock.now_s += 0.25
    await queue.enqueue_jobs(jobs(1, payload=bytes(250)))


async def test_what_one_rate_refuses_costs_nothing_of_the_other(
    limited: Limited, backend: Counting, clock: ManualClock
) -> None:
    queue = limited(submissions_per_s=100.0, payload_bytes_per_s=1000.0)
    await queue.enqueue_jobs(jobs(1, payload=bytes(1000)))
    for _ in range(5):
        with pytest.raises(QuotaExceeded) as refused:
            await queue.submit(jobs(50, payload=bytes(100)))
        assert refused.value.limit == "payload_bytes_per_s"
    await queue.submit(jobs(99))
    assert await pending(backend) == 100


async def test_less_than_one_a_second_is_told_as_one(limited: Limited) -> None:
    queue = limited(submissions_per_s=0.5)
    await queue.enqueue_job(*jobs(1))
    with pytest.raises(QuotaExceeded) as refused:
        await queue.enqueue_job(*jobs(1))
    assert (refused.value.current, refused.value.maximum) == (1, 1)


async def test_a_batch_that_never_fits_is_not_to_be_sent_again(limited: Limited) -> None:
    queue = limited(pending_jobs=5)
    with pytest.raises(QuotaExceeded, match="a batch of 6 jobs never fits into 5; split") as never:
        await queue.enqueue_jobs(jobs(6))
    assert (never.value.retry_after_s, never.value.retryable) == (None, False)
    await queue.enqueue_jobs(jobs(4))
    with pytest.raises(QuotaExceeded, match="4 of 5 used; retry") as later:
        await queue.enqueue_jobs(jobs(5))
    assert (later.value.retry_after_s, later.value.retryable) == (1.0, True)
    answers = await queue.submit(jobs(6), atomic=False)
    errors = [answer.error for answer in answers[1:]]
    assert all(isinstance(error, QuotaExceeded) and error.retry_after_s for error in errors)


async def test_one_batch_above_a_second_is_let_through_on_credit(
    limited: Limited, clock: ManualClock
) -> None:
    queue = limited(submissions_per_s=10.0)
    await queue.enqueue_jobs(jobs(40))
    with pytest.raises(QuotaExceeded) as refused:
        await queue.enqueue_jobs(jobs(1))
    assert refused.value.retry_after_s == pytest.approx(3.1)


async def test_one_payload_above_the_quota_is_met_by_waiting(
    limited: Limited, clock: ManualClock
) -> None:
    queue = limited(payload_bytes_per_s=10.0, payload_bytes_burst=100)
    await queue.enqueue_jobs(jobs(1, payload=bytes(50)))
    large = jobs(1, payload=bytes(1000))
    [answer] = await queue.submit(large, atomic=False)
    assert isinstance(answer.error, QuotaExceeded)
    clock.now_s += answer.error.retry_after_s or 0.0
    [answer] = await queue.submit(large, atomic=False)
    assert answer.error is None


async def test_without_credit_a_crowd_gets_what_full_buckets_hold(
    backend: Counting, clock: ManualClock
) -> None:
    terms = {"submissions_per_s": 0.01, "payload_bytes_per_s": 0.01}
    quota = Quota(**terms, submissions_burst=7, payload_bytes_burst=100)
    quotas = Quotas(backend, QuotaSettings(default=quota), clock)
    crowd = [*jobs(2, payload=bytes(40)), *jobs(10, payload=bytes(2)), *jobs(1, payload=bytes(500))]
    async with quotas.admitting(crowd, whole=False, on_credit=False) as admission:
        assert sorted(admission.refused) == list(range(7, 13))
    # Alone, what is larger than a bucket is let through when it is full.
    clock.now_s += 10_000
    async with quotas.admitting(crowd[-1:], whole=False, on_credit=False) as admission:
        assert not admission.refused


async def test_many_namespaces_are_looked_at_with_one_question(
    backend: Counting, clock: ManualClock
) -> None:
    quotas = Quotas(backend, QuotaSettings(default=Quota(pending_jobs=2)), clock)
    names = [f"n{n}" for n in range(50)]
    crowd = [job for name in names for job in jobs(3, name)]
    async with quotas.admitting(crowd, whole=False) as admission:
        assert len(admission.refused) == 50
        await backend.submit([job for n, job in enumerate(crowd) if n not in admission.refused])
    assert backend.looks == 1
    clock.now_s += FRESH_S
    assert await quotas.room(names) == dict.fromkeys(names, 0)
    assert backend.looks == 2


async def test_single_submissions_share_a_trip_for_tokens(
    limited: Limited, backend: Counting
) -> None:
    queue = limited(submissions_per_s=1000.0)
    for job in jobs(500):
        await queue.enqueue_job(job)
    assert backend.takes <= 6


@proves("external-api.QuotaError.expect.2")
async def test_replicas_share_a_rate(
    limited: Limited, clock: ManualClock, backend: Counting
) -> None:
    first, second = (limited(submissions_per_s=20.0) for _ in range(2))
    accepted = 0
    for queue in (first, second) * 20:
        try:
            await queue.enqueue_jobs(jobs(1))
            accepted += 1
        except QuotaExceeded:
            pass
    # What one of them fetched ahead the other cannot have.
    assert 18 <= accepted <= 20


# Repeats of what is stored


async def test_a_repeat_is_answered_though_the_namespace_is_full(
    limited: Limited, backend: Counting
) -> None:
    queue = limited(pending_jobs=3)
    first = await queue.enqueue_jobs(keyed("a", "b", "c"))
    assert await queue.enqueue_job(*keyed("a")) == first[0]
    assert await queue.enqueue_jobs(keyed("c", "a")) == [first[2], first[0]]
    answers = await queue.submit(keyed("b", "b"))
    assert [(one.job_id, one.duplicate) for one in answers] == [(first[1], True)] * 2
    with pytest.raises(QuotaExceeded):
        await queue.enqueue_jobs(keyed("a", "new"))
    with pytest.raises(QuotaExceeded):
        await queue.enqueue_job(*keyed("new"))
    assert await pending(backend) == 3


async def test_what_says_something_else_under_a_key_is_told_so_at_once(limited: Limited) -> None:
    queue = limited(pending_jobs=1)
    await queue.enqueue_jobs(keyed("a"))
    with pytest.raises(KeyConflict):
        await queue.enqueue_job(*keyed("a", payload=b"2"))


async def test_of_a_crowd_the_repeats_go_through(limited: Limited, backend: Counting) -> None:
    queue = limited(pending_jobs=3)
    await queue.enqueue_jobs(keyed("a", "b"))
    mixed = [*keyed("a", "new", "new", "lost", "b", "lost"), *jobs(1)]
    answers = await queue.submit(mixed, atomic=False)
    told = ["dup" if a.duplicate else "lost" if a.error else "new" for a in answers]
    assert told == ["dup", "new", "dup", "lost", "dup", "lost", "lost"]
    assert await pending(backend) == 3
    assert backend.key_looks == 1


async def test_keys_are_looked_up_once_for_a_batch_and_only_where_a_quota_refuses(
    limited: Limited, backend: Counting, clock: ManualClock
) -> None:
    quotas = QuotaSettings(default=Quota(pending_jobs=10))
    queue = QueueService(backend, clock=clock, quotas=quotas)
    await queue.enqueue_jobs([*keyed(*"abcdefghij"), *keyed(*"abcde", namespace="other")])
    await queue.submit(keyed(*"abc", namespace="other"), atomic=False)
    assert backend.key_looks == 0
    both = [*keyed(*"abcdefghijk"), *keyed(*"abcdefghijklm", namespace="other")]
    answers = await queue.submit(both, atomic=False)
    assert sum(one.duplicate for one in answers) == 15
    assert sum(one.error is not None for one in answers) == 1 + 3
    assert backend.key_looks == 1
    with pytest.raises(QuotaExceeded):
        await queue.enqueue_jobs(jobs(1))
    assert backend.key_looks == 1
    await queue.stop()


@pytest.mark.parametrize("same_id", [False, True])
async def test_a_repeat_uses_nothing_of_a_quota(
    limited: Limited, backend: Counting, clock: ManualClock, same_id: bool
) -> None:
    queue = limited(
        pending_jobs=6, submissions_per_s=0.01, submissions_burst=5, payload_bytes_per_s=1000.0
    )
    [first] = keyed("a", payload=bytes(100))
    await queue.enqueue_job(first)
    for n in range(20):
        # Longer than a replica keeps tokens.
        clock.now_s += 2.0
        again = first if same_id else replace(first, id=f"again-{n}")
        assert await queue.enqueue_job(again) == first.id
        assert await queue.enqueue_jobs([again]) == [first.id]
        for atomic in (True, False):
            [answer] = await queue.submit([again], atomic=atomic)
            assert answer.duplicate
    await queue.enqueue_jobs(jobs(4))
    with pytest.raises(QuotaExceeded):
        await queue.enqueue_jobs(jobs(1))
    assert await queue.enqueue_job(first) == first.id


async def test_a_repeat_makes_no_debt(limited: Limited, clock: ManualClock) -> None:
    queue = limited(submissions_per_s=0.01, submissions_burst=10)
    many = keyed(*(str(n) for n in range(30)))
    await queue.submit(many)
    clock.now_s += 100 * 30
    for _ in range(3):
        answers = await queue.submit(many, atomic=False)
        assert all(one.duplicate for one in answers)
    await queue.enqueue_jobs(jobs(10))


# What may run


def spec(name: str, capacity: int, namespace: str = "team") -> StreamSpec:
    return StreamSpec(assignee_id=name, worker_name=name, capacity=capacity, namespace=namespace)


async def given(stream: JobStream, count: int) -> list[Outcome]:
    got: list[Outcome] = []
    async with asyncio.timeout(DEADLINE_S):
        while len(got) < count:
            push = await stream.next()
            assert push is not None
            stream.delivered(push)
            got += [
                Outcome(one.job_id, Event.COMPLETE, one.namespace, one.token)
                for one in push.assignments
            ]
    return got


@proves("external-api.QuotaError.expect.1")
async def test_no_more_run_than_may(backend: Counting) -> None:
    quotas = QuotaSettings(default=Quota(running_jobs=3))
    queue = QueueService(backend, quotas=quotas)
    await queue.start()
    first, second = [await queue.open_stream(spec(name, 10)) for name in ("a", "b")]
    other = await queue.open_stream(spec("c", 2, "other"))
    await queue.enqueue_jobs([*jobs(9), *jobs(2, "other")])
    assert len(await given(other, 2)) == 2
    done = 0
    streams: Mapping[str, JobStream] = {"a": first, "b": second}
    async with asyncio.timeout(DEADLINE_S):
        while done < 9:
            for stream in streams.values():
                if stream.slots.busy:
                    held = await given(stream, stream.slots.busy)
                    running = (await backend.usage_of(["team"]))["team"].running
                    assert running <= 3
                    await stream.settle(held)
                    done += len(held)
            await asyncio.wait([asyncio.ensure_future(queue.ping())])
    await queue.close()


async def test_at_the_limit_the_store_is_not_asked_again_and_again(
    backend: Counting, clock: ManualClock
) -> None:
    quotas = QuotaSettings(default=Quota(running_jobs=1))
    queue = QueueService(backend, clock=clock, quotas=quotas)
    await queue.start()
    stream = await queue.open_stream(spec("a", 10))
    await queue.enqueue_jobs(jobs(5))
    [outcome] = await given(stream, 1)
    for _ in range(50):
        await queue.ping()
    before = backend.looks
    for _ in range(200):
        await queue.ping()
    assert backend.looks == before
    await stream.settle([outcome])
    assert len(await given(stream, 1)) == 1
    await queue.close()


async def test_room_is_shared_in_turn(backend: Counting, clock: ManualClock) -> None:
    quotas = Quotas(backend, QuotaSettings(default=Quota(running_jobs=5)), clock)
    demands = [Demand(assignee_id=name, limit=4, namespace="team") for name in "abc"]
    cut = await quotas.within(demands)
    assert [demand.limit for demand in cut] == [2, 2, 1]
