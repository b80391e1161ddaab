"""EnqueueJobs, and a batch with an answer per job."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from queue_operator.domain.errors import DuplicateJob, InvalidArgument, JobNotFound, KeyConflict
from queue_operator.domain.job import Job, Submitted
from queue_operator.domain.record import answered
from queue_operator.domain.states import Event, JobState
from queue_operator.domain.views import Phase, phase
from queue_operator.testing.breaking import in_a_cancelled_task, whole_or_not_at_all
from queue_operator.testing.clauses import proves
from queue_operator.testing.driving import a_job, apply, claim, job_in, submitted
from queue_operator.testing.store import Contract, Store


async def _ids(backend: Contract, jobs: list[Job]) -> list[str]:
    """Ids of those that are stored."""
    found = []
    for job in jobs:
        try:
            found.append((await backend.get_job(job.id, namespace=job.namespace)).id)
        except JobNotFound:
            continue
    return found


@proves(
    "backend-api.EnqueueJobs.pre.1",
    "backend-api.EnqueueJobs.error.3",
    "backend-api.EnqueueJobs.must.1",
)
async def test_enqueue_jobs_cancelled(backend: Contract) -> None:
    await in_a_cancelled_task(lambda: backend.enqueue_jobs([a_job(), a_job()]))

    async def bring() -> list[Job]:
        return [a_job() for _ in range(20)]

    async def count(jobs: list[Job]) -> int:
        return len(await _ids(backend, jobs))

    await whole_or_not_at_all(bring, backend.enqueue_jobs, count)


@proves("backend-api.EnqueueJobs.pre.2")
async def test_enqueue_jobs_of_none(backend: Contract) -> None:
    assert await backend.enqueue_jobs([]) == []
    assert (await backend.get_job_stats([])).total_jobs == 0


@proves("backend-api.EnqueueJobs.pre.3")
@pytest.mark.parametrize("thing", [None, "job", {"id": "a", "type": "t"}])
async def test_enqueue_jobs_with_what_is_no_job(backend: Contract, thing: Any) -> None:
    with pytest.raises(InvalidArgument) as raised:
        await backend.enqueue_jobs([a_job(), thing])
    assert raised.value.field == "jobs[1]"
    assert (await backend.get_job_stats([])).total_jobs == 0


@pytest.mark.parametrize("thing", [None, "jobs", b"jobs", 7])
async def test_enqueue_jobs_of_what_is_no_batch(backend: Contract, thing: Any) -> None:
    with pytest.raises(InvalidArgument) as raised:
        await backend.enqueue_jobs(thing)
    assert raised.value.field == "jobs"


@proves("backend-api.EnqueueJobs.pre.4", "backend-api.EnqueueJobs.must.2")
async def test_enqueue_jobs_without_an_id_or_with_one_twice(backend: Contract) -> None:
    with pytest.raises(InvalidArgument) as empty:
        await backend.enqueue_jobs([a_job(), a_job(), a_job(id="")])
    assert empty.value.field == "jobs[2].id"
    job, other = a_job(), a_job()
    with pytest.raises(DuplicateJob) as twice:
        await backend.enqueue_jobs([job, other, job, a_job(), other])
    assert (twice.value.indexes, twice.value.job_ids) == ((2, 4), (job.id, other.id))
    assert (await backend.get_job_stats([])).total_jobs == 0


@proves("backend-api.EnqueueJobs.pre.5")
@pytest.mark.parametrize("state", sorted(set(JobState) - {JobState.INITIAL_PENDING}))
async def test_enqueue_jobs_in_another_state(backend: Contract, state: JobState) -> None:
    with pytest.raises(InvalidArgument) as raised:
        await backend.enqueue_jobs([a_job(), a_job(state=state)])
    assert raised.value.field == "jobs[1].state"
    assert (await backend.get_job_stats([])).total_jobs == 0


@proves(
    "backend-api.EnqueueJobs.pre.6",
    "backend-api.EnqueueJobs.post.4",
    "backend-api.EnqueueJobs.post.5",
    "backend-api.EnqueueJobs.error.4",
    "backend-api.EnqueueJobs.must.2",
)
async def test_enqueue_jobs_with_ids_that_exist(backend: Contract) -> None:
    first, second = await submitted(backend), await submitted(backend)
    before = [await backend.get_job(job.id) for job in (first, second)]
    new = [a_job() for _ in range(3)]
    with pytest.raises(DuplicateJob) as raised:
        await backend.enqueue_jobs([new[0], second, new[1], first, new[2]])
    assert (raised.value.indexes, raised.value.job_ids) == ((1, 3), (second.id, first.id))
    assert await _ids(backend, new) == []
    assert [await backend.get_job(job.id) for job in (first, second)] == before
    assert (await backend.get_job_stats([])).total_jobs == 2


@proves("backend-api.EnqueueJobs.post.1", "backend-api.EnqueueJobs.post.2")
async def test_enqueue_jobs_gives_the_ids_in_order(backend: Contract) -> None:
    jobs = [a_job(payload=str(n).encode()) for n in range(1500)]
    jobs.reverse()
    assert await backend.enqueue_jobs(jobs) == [job.id for job in jobs]
    assert (await backend.get_job(jobs[1234].id)).payload == jobs[1234].payload
    stats = await backend.get_job_stats([])
    assert (stats.total_jobs, stats.pending_jobs) == (1500, 1500)


@proves(
    "backend-api.EnqueueJobs.post.3",
    "backend-api.EnqueueJobs.effect.1",
    "backend-api.EnqueueJobs.effect.2",
)
async def test_enqueue_jobs_makes_all_visible_at_once(backend: Contract) -> None:
    jobs = [a_job(tags=frozenset({"all", f"n={n}"})) for n in range(7)]
    await backend.enqueue_jobs(jobs)
    assert await _ids(backend, jobs) == [job.id for job in jobs]
    assert (await backend.get_job_stats(["all"])).pending_jobs == 7
    assert [job.id for job in await backend.dequeue_jobs("w", ["n=3"], 9)] == [jobs[3].id]
    assert len(await backend.dequeue_jobs("w", ["all"], 9)) == 6


@proves(
    "backend-api.EnqueueJobs.error.1",
    "backend-api.Invariants.rule.2",
    "backend-api.EnqueueJobs.must.1",
    "backend-api.EnqueueJobs.must.4",
)
@pytest.mark.parametrize("place", [0, 9, 19])
async def test_enqueue_jobs_with_one_bad_job(backend: Contract, place: int) -> None:
    jobs = [a_job(type="" if n == place else "t") for n in range(20)]
    with pytest.raises(InvalidArgument) as raised:
        await backend.enqueue_jobs(jobs)
    assert raised.value.field == f"jobs[{place}].type"
    assert await _ids(backend, jobs) == []


@proves("backend-api.EnqueueJobs.expect.1")
async def test_enqueue_jobs_by_racing_callers_with_an_id_in_common(store: Store) -> None:
    replicas = [await store.open() for _ in range(4)]
    batches = [[*(a_job() for _ in range(9)), a_job(id="common")] for _ in range(12)]
    # The common one is at the head of every second batch, for locks are taken in some order.
    for batch in batches[::2]:
        batch.reverse()
    tries = [replicas[n % 4].enqueue_jobs(batch) for n, batch in enumerate(batches)]
    answers = await asyncio.gather(*tries, return_exceptions=True)
    [winner] = [n for n, answer in enumerate(answers) if isinstance(answer, list)]
    assert all(isinstance(a, DuplicateJob) for n, a in enumerate(answers) if n != winner)
    assert (await replicas[0].get_job_stats([])).total_jobs == 10
    assert len(await _ids(replicas[0], batches[winner])) == 10


async def test_submit_not_atomic_answers_each_job(backend: Contract) -> None:
    taken = await submitted(backend)
    jobs = [a_job(), a_job(type=""), taken, a_job(), a_job(depends_on=("nobody",))]
    answers = await backend.submit(jobs, atomic=False)
    assert [answer.job_id for answer in answers] == [job.id for job in jobs]
    errors = [answer.error for answer in answers]
    assert [errors[0], errors[3]] == [None, None]
    assert isinstance(errors[1], InvalidArgument)
    assert errors[1].field == "jobs[1].type"
    assert isinstance(errors[2], DuplicateJob)
    assert isinstance(errors[4], InvalidArgument)
    assert errors[4].field == "jobs[4].depends_on[0]"
    assert await _ids(backend, [jobs[0], jobs[1], jobs[3], jobs[4]]) == [jobs[0].id, jobs[3].id]
    assert (await backend.get_job_stats([])).total_jobs == 3


async def _as_told(backend: Contract, jobs: list[Job], *, atomic: bool = True) -> list[Submitted]:
    """The answers, which say of each job what is stored of it."""
    answers = await backend.submit(jobs, atomic=atomic)
    for answer in answers:
        stored = await backend.get_job(answer.job_id)
        assert answer == answered(stored, duplicate=answer.duplicate)
    return answers


@pytest.mark.parametrize("atomic", [True, False])
@pytest.mark.parametrize("size", [1, 60])
async def test_submit_tells_when_each_job_may_run(
    backend: Contract, size: int, atomic: bool
) -> None:
    at = datetime(2024, 1, 1, tzinfo=UTC)
    kinds: list[dict[str, object]] = [
        {},
        {"delay_s": 90.0},
        {"scheduled_at": datetime(2999, 1, 1, tzinfo=UTC)},
        {"scheduled_at": at},
        {"created_at": at, "idempotency_key": "k"},
        {"created_at": at, "delay_s": 1.5},
    ]
    for kind in kinds:
        jobs = [a_job(**kind), *(a_job() for _ in range(size - 1))]
        answers = await _as_told(backend, jobs, atomic=atomic)
        assert [one.job_id for one in answers] == [job.id for job in jobs]
    assert answers[0].eligible_at is not None
    assert answers[0].created_at == at


@pytest.mark.parametrize("atomic", [True, False])
async def test_submit_tells_which_jobs_wait_for_others(backend: Contract, atomic: bool) -> None:
    waiting, done = await submitted(backend), (await job_in(backend, JobState.COMPLETED))[0]
    inside = a_job()
    children = [a_job(depends_on=(one.id,)) for one in (waiting, done, inside)]
    told = await _as_told(backend, [inside, *children], atomic=atomic)
    assert [one.waiting_for_dependencies for one in told] == [False, True, False, True]
    # One that never can run is skipped at once, and so are those that wait for it.
    stopped, _ = await job_in(backend, JobState.STOPPED)
    child = a_job(depends_on=(stopped.id,))
    batch = [child, a_job(depends_on=(child.id,)), a_job(depends_on=(waiting.id,)), a_job()]
    told = await _as_told(backend, batch, atomic=atomic)
    skipped, pending = JobState.UNSCHEDULED, JobState.INITIAL_PENDING
    assert [one.state for one in told] == [skipped, skipped, pending, pending]


@pytest.mark.parametrize("atomic", [True, False])
async def test_submit_tells_how_the_first_job_of_a_repeat_stands(
    backend: Contract, atomic: bool
) -> None:
    firsts = [a_job(type="t", idempotency_key=f"k{n}") for n in range(4)]
    await backend.enqueue_jobs(firsts)
    tokens = [(await claim(backend, job)).token for job in firsts[:3]]
    await apply(backend, firsts[1], Event.COMPLETE, tokens[1])
    await apply(backend, firsts[2], Event.EXHAUST, tokens[2])
    new = a_job(type="t", idempotency_key="new")
    repeats = [a_job(type="t", idempotency_key=job.idempotency_key) for job in (*firsts, new)]
    told = await _as_told(backend, [new, *repeats, a_job()], atomic=atomic)
    assert [one.job_id for one in told[1:6]] == [*(job.id for job in firsts), new.id]
    assert [one.duplicate for one in told] == [False, *[True] * 5, False]
    assert [one.state for one in told[1:4]] == [
        JobState.RUNNING,
        JobState.COMPLETED,
        JobState.DEAD_LETTER,
    ]
    now = datetime.now(UTC)
    assert phase(told[3], now) is phase(await backend.get_job(firsts[2].id), now) is Phase.FAILED


async def test_submit_tells_nothing_of_what_was_refused(backend: Contract) -> None:
    taken = await submitted(backend)
    answers = await backend.submit([a_job(type=""), taken], atomic=False)
    assert [(one.created_at, one.eligible_at) for one in answers] == [(None, None)] * 2


async def test_a_refusal_names_the_place_among_all_that_were_given(backend: Contract) -> None:
    stored = await submitted(backend)
    await submitted(backend, idempotency_key="k")
    batch = [a_job(id=""), a_job(), stored, a_job(idempotency_key="k", payload=b"other")]
    answers = await backend.submit(batch, atomic=False)
    bad, good, twice, clash = [answer.error for answer in answers]
    assert good is None
    assert isinstance(bad, InvalidArgument)
    assert isinstance(twice, DuplicateJob)
    assert isinstance(clash, KeyConflict)
    assert (bad.field, clash.field) == ("jobs[0].id", "jobs[3].idempotency_key")
    assert (twice.indexes, twice.job_ids) == ((2,), (stored.id,))
