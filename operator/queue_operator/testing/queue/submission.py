"""EnqueueJob and EnqueueJobs."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from queue_operator.domain.errors import DuplicateJob, InvalidArgument, JobNotFound, KeyConflict
from queue_operator.domain.job import Job
from queue_operator.domain.states import JobState
from queue_operator.testing.breaking import in_a_cancelled_task
from queue_operator.testing.clauses import proves
from queue_operator.testing.queue.desk import Desk

_WRONG: list[tuple[dict[str, Any], str]] = [
    ({"id": ""}, "id"),
    ({"state": JobState.RUNNING}, "state"),
    ({"state": JobState.FAILED_RETRY}, "state"),
    ({"assignee_id": "w"}, "assignee_id"),
    ({"attempt": 1}, "attempt"),
]


async def _missing(desk: Desk, *jobs: Job) -> None:
    for job in jobs:
        with pytest.raises(JobNotFound):
            await desk.get(job)


@proves("queue-api.EnqueueJob.pre.2", "queue-api.EnqueueJob.post.4")
@pytest.mark.parametrize("what", [None, "job", 7, {"id": "a"}])
async def test_enqueue_what_is_no_job(desk: Desk, what: Any) -> None:
    waiting = await desk.waiting()
    before = desk.rig.looks(waiting.assignee)
    with pytest.raises(InvalidArgument) as raised:
        await desk.calls.enqueue_job(what)
    assert raised.value.field == "job"
    with pytest.raises(InvalidArgument) as raised:
        await desk.calls.enqueue_jobs([what])
    assert raised.value.field == "jobs[0]"
    await desk.nothing_more(waiting)
    assert desk.rig.looks(waiting.assignee) == before


@proves("queue-api.EnqueueJob.pre.3", "queue-api.EnqueueJob.pre.4")
@pytest.mark.parametrize(("fields", "field"), _WRONG)
async def test_enqueue_a_job_with_a_wrong_field(
    desk: Desk, fields: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidArgument) as raised:
        await desk.calls.enqueue_job(desk.job(**fields))
    assert raised.value.field == field
    assert (await desk.stats()).total_jobs == 0


@proves("queue-api.EnqueueJob.post.1")
async def test_enqueue_gives_the_id_and_under_a_key_the_first_one(desk: Desk) -> None:
    plain = desk.job()
    assert await desk.calls.enqueue_job(plain) == plain.id
    first = desk.job(payload=b"1", idempotency_key="k")
    repeat = desk.job(payload=b"1", idempotency_key="k")
    assert await desk.calls.enqueue_job(first) == first.id
    assert await desk.calls.enqueue_job(repeat) == first.id
    await _missing(desk, repeat)


async def test_enqueue_a_batch_that_repeats_itself_and_one_with_keys_that_are_taken(
    desk: Desk,
) -> None:
    first, second = (desk.job(payload=b"1", idempotency_key=key) for key in "ab")
    between = desk.job()
    # As if they were sent apart.
    ids = await desk.calls.enqueue_jobs([first, between, first, second])
    assert ids == [first.id, between.id, first.id, second.id]
    clashes = [desk.job(payload=b"2", idempotency_key=key) for key in "ab"]
    with pytest.raises(KeyConflict) as raised:
        await desk.calls.enqueue_jobs([clashes[0], desk.job(), clashes[1]])
    assert [(one.field, one.job_id) for one in raised.value.findings] == [
        ("jobs[0].idempotency_key", first.id),
        ("jobs[2].idempotency_key", second.id),
    ]
    await _missing(desk, *clashes)


@proves("queue-api.EnqueueJob.post.2", "queue-api.EnqueueJob.expect.2")
async def test_enqueue_leaves_the_job_waiting_for_a_stream(desk: Desk) -> None:
    [job] = await desk.submit(tags=frozenset({"a"}))
    other = desk.stream(1, ["b"])
    await desk.nothing_more(other)
    assert await desk.state(job) is JobState.INITIAL_PENDING
    assert (await desk.stream(1, ["a"]).one()).id == job.id
    assert await desk.state(job) is JobState.RUNNING


@proves("queue-api.EnqueueJob.post.3")
async def test_enqueue_wakes_a_waiting_stream(desk: Desk) -> None:
    waiting = await desk.waiting(tags=["a"])
    [job] = await desk.submit(tags=frozenset({"a", "b"}))
    # No poll comes to its help: see QueueRig.
    assert (await waiting.one()).id == job.id


@proves("queue-api.EnqueueJob.effect.1")
async def test_enqueue_is_for_later_streams_too(desk: Desk) -> None:
    jobs = await desk.submit(3, tags=frozenset({"a"}))
    stream = desk.stream(tags=["a"])
    assert {job.id for job in await stream.take(3)} == {job.id for job in jobs}


@proves("queue-api.EnqueueJob.effect.2", "queue-api.StreamJobs.expect.4")
async def test_enqueue_gives_each_job_to_one_of_many_streams(desk: Desk) -> None:
    streams = [desk.stream(20).start() for _ in range(4)]
    jobs = await desk.submit(20)
    given: list[Job] = []
    while len(given) < len(jobs):
        await asyncio.wait([s.start().step for s in streams], return_when=asyncio.FIRST_COMPLETED)
        for stream in streams:
            if not stream.waits:
                given += await stream.batch()
    await desk.nothing_more(*streams)
    assert sorted(job.id for job in given) == sorted(job.id for job in jobs)


@proves("queue-api.EnqueueJob.expect.1")
async def test_enqueue_stores_every_field(desk: Desk) -> None:
    given = desk.job(
        type="mail",
        payload=bytes(range(256)),
        content_type="text/x",
        tags=frozenset({"A", "b"}),
        max_attempts=3,
        timeout_s=7.5,
        correlation_id="c",
        traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        tracestate="vendor=a",
    )
    await desk.calls.enqueue_job(given)
    stored = await desk.get(given)
    for field in ("id", "type", "payload", "content_type", "namespace", "tags"):
        assert getattr(stored, field) == getattr(given, field)
    assert (stored.max_attempts, stored.timeout_s, stored.correlation_id) == (3, 7.5, "c")
    assert (stored.traceparent, stored.tracestate) == (given.traceparent, given.tracestate)
    # In another namespace the same id is another job's.
    twin = desk.job(id=given.id, namespace=f"{desk.namespace}-else", payload=b"twin")
    await desk.calls.enqueue_job(twin)
    assert (await desk.get(given)).payload == given.payload


@proves("queue-api.EnqueueJob.expect.3", "queue-api.EnqueueJobs.expect.1")
async def test_enqueue_cut_off_stores_whole_batches_or_nothing(desk: Desk) -> None:
    waiting = await desk.waiting(tags=["never"])
    batches = [[desk.job() for _ in range(3)] for _ in range(12)]
    for turns, batch in enumerate(batches):
        call = asyncio.ensure_future(desk.calls.enqueue_jobs(batch))
        for _ in range(turns):
            await asyncio.sleep(0)
        call.cancel()
        await asyncio.wait([call])
    # What has reached the store all the same is stored as a whole, and may take a moment.
    await desk.until(lambda: _are_whole(desk, batches))
    assert waiting.waits


async def _are_whole(desk: Desk, batches: Sequence[Sequence[Job]]) -> bool:
    """Whether of each batch all is stored or nothing, and nothing else. At no moment half a batch
    is: of jobs that are asked for one by one a count alone can tell.
    """
    found = [[await _is_stored(desk, job) for job in batch] for batch in batches]
    total = (await desk.stats()).pending_jobs
    assert total % len(batches[0]) == 0, "half a batch is stored"
    return all(len(set(batch)) == 1 for batch in found) and total == sum(map(sum, found))


async def _is_stored(desk: Desk, job: Job) -> bool:
    try:
        return (await desk.get(job)).id == job.id
    except JobNotFound:
        return False


@proves("queue-api.EnqueueJob.expect.4")
async def test_enqueue_an_id_that_is_taken(desk: Desk) -> None:
    [first] = await desk.submit(payload=b"first")
    before = await desk.get(first)
    with pytest.raises(DuplicateJob) as raised:
        await desk.calls.enqueue_job(desk.job(id=first.id, payload=b"second"))
    assert raised.value.job_ids == (first.id,)
    assert await desk.get(first) == before


@proves("queue-api.EnqueueJob.expect.5")
async def test_enqueue_by_racing_callers(desk: Desk) -> None:
    jobs = [desk.job(id=f"same-{n % 3}", payload=str(n).encode()) for n in range(12)]
    answers = await asyncio.gather(*map(desk.calls.enqueue_job, jobs), return_exceptions=True)
    won = [job for job, answer in zip(jobs, answers, strict=True) if answer == job.id]
    lost = [answer for answer in answers if isinstance(answer, DuplicateJob)]
    assert (sorted(job.id for job in won), len(lost)) == (["same-0", "same-1", "same-2"], 9)
    for job in won:
        assert (await desk.get(job)).payload == job.payload


@proves("queue-api.EnqueueJob.rule.1")
async def test_enqueue_for_later_wakes_nobody_now(desk: Desk) -> None:
    waiting = await desk.waiting()
    before = desk.rig.looks(waiting.assignee)
    [job] = await desk.submit(delay_s=600)
    await desk.nothing_more(waiting)
    assert desk.rig.looks(waiting.assignee) == before
    await desk.rig.age(601)
    assert (await waiting.one()).id == job.id


@proves("queue-api.EnqueueJobs.pre.2")
async def test_enqueue_nothing(desk: Desk) -> None:
    waiting = await desk.waiting()
    before = desk.rig.looks(waiting.assignee)
    assert await desk.calls.enqueue_jobs([]) == []
    await desk.nothing_more(waiting)
    assert desk.rig.looks(waiting.assignee) == before


@proves(
    "queue-api.EnqueueJobs.post.1",
    "queue-api.EnqueueJobs.post.2",
    "queue-api.EnqueueJobs.effect.1",
)
async def test_enqueue_a_batch_stores_all_of_it(desk: Desk) -> None:
    jobs = [desk.job(tags=frozenset({"a" if n % 2 else "b"})) for n in range(9)]
    assert await desk.calls.enqueue_jobs(jobs) == [job.id for job in jobs]
    assert set(await desk.states(jobs)) == {JobState.INITIAL_PENDING}
    odd, even = desk.stream(tags=["a"]), desk.stream(tags=["b"])
    assert {job.id for job in await odd.take(4)} == {job.id for job in jobs[1::2]}
    assert {job.id for job in await even.take(5)} == {job.id for job in jobs[::2]}


@proves(
    "queue-api.EnqueueJobs.post.3",
    "queue-api.CoreConcepts.rule.6",
    "queue-api.Replicas.rule.10",
)
async def test_enqueue_a_batch_wakes_each_matching_stream_once(desk: Desk) -> None:
    matching = [await desk.waiting(1, ["a"]), await desk.waiting(1, ["a", "b"])]
    other = await desk.waiting(1, ["c"])
    before = {one: desk.rig.looks(one.assignee) for one in (*matching, other)}
    await desk.submit(6, tags=frozenset({"a", "b"}))
    for stream in matching:
        await stream.one()
    await desk.nothing_more(other)
    looked = {one: desk.rig.looks(one.assignee) - count for one, count in before.items()}
    assert [looked[one] for one in (*matching, other)] == [1, 1, 0]


@proves("queue-api.EnqueueJobs.effect.2")
async def test_enqueue_a_batch_fills_the_waiting_streams(desk: Desk) -> None:
    small, large = await desk.waiting(2, ["a"]), await desk.waiting(3, ["a"])
    await desk.submit(6, tags=frozenset({"a"}))
    assert [len(await small.take(2)), len(await large.take(3))] == [2, 3]
    await desk.nothing_more(small, large)


@proves(
    "queue-api.EnqueueJobs.post.4",
    "queue-api.EnqueueJobs.expect.2",
    "queue-api.EnqueueJobs.expect.4",
)
async def test_enqueue_a_batch_with_a_fault_stores_nothing(desk: Desk) -> None:
    waiting = await desk.waiting()
    [stored] = await desk.submit(tags=frozenset({"stored"}))
    assert (await waiting.one()).id == stored.id
    await desk.nothing_more(waiting)
    before = desk.rig.looks(waiting.assignee)
    good = [desk.job() for _ in range(3)]
    faults: list[tuple[list[Job], type[InvalidArgument]]] = [
        ([*good, desk.job(type="")], InvalidArgument),
        ([*good, good[0]], DuplicateJob),
        ([*good, desk.job(id=stored.id)], DuplicateJob),
    ]
    for batch, kind in faults:
        with pytest.raises(kind) as raised:
            await desk.calls.enqueue_jobs(batch)
        assert getattr(raised.value, "indexes", (3,))[-1] == 3
        assert kind is DuplicateJob or raised.value.field == "jobs[3].type"
        await _missing(desk, *good)
    await desk.nothing_more(waiting)
    assert desk.rig.looks(waiting.assignee) == before


@proves("queue-api.EnqueueJob.pre.1", "queue-api.EnqueueJobs.pre.1")
async def test_enqueue_in_a_cancelled_task(desk: Desk) -> None:
    one = desk.job(tags=frozenset({"one"}))
    await in_a_cancelled_task(lambda: desk.calls.enqueue_job(one))
    others = [desk.job(tags=frozenset({"others"})) for _ in range(3)]
    await in_a_cancelled_task(lambda: desk.calls.enqueue_jobs(others))
    # What has reached the store all the same is stored as a whole, and may take a moment.
    assert (await desk.stats("one")).pending_jobs in {0, 1}
    assert (await desk.stats("others")).pending_jobs in {0, 3}
