"""Places: how many come before a job, what it waits for, and what keeps it."""

from datetime import UTC, datetime, timedelta
from typing import Final

import pytest

from queue_operator.backends.protocol import Pause, Pauses, Place, Places
from queue_operator.domain.errors import InvalidArgument, JobNotFound
from queue_operator.domain.job import Job
from queue_operator.domain.ordering import Priority
from queue_operator.domain.states import Event, JobState
from queue_operator.testing.driving import a_job, apply, claim, job_in, submitted
from queue_operator.testing.store import TTL_S, Contract, Store
from queue_operator.testing.table import ELIGIBLE

_PARENT_ENDS: Final = {
    Event.COMPLETE: JobState.COMPLETED,
    Event.STOP: JobState.STOPPED,
    Event.EXHAUST: JobState.DEAD_LETTER,
}


async def _place(backend: Contract, job: Job) -> Place:
    assert isinstance(backend, Places)
    return await backend.place_of(job.id, namespace=job.namespace)


async def _ahead(backend: Contract, *jobs: Job) -> list[int]:
    return [(await _place(backend, job)).ahead for job in jobs]


async def test_a_place_counts_the_jobs_that_are_claimed_before(backend: Contract) -> None:
    jobs = [await submitted(backend, type="t", tags=frozenset({f"{n % 2}"})) for n in range(4)]
    urgent = await submitted(backend, type="t", priority=Priority.CRITICAL)
    bulk = await submitted(backend, type="t", priority=Priority.BULK)
    for fields in ({"type": "u"}, {"type": "t", "namespace": "other"}):
        await submitted(backend, **fields)
    order = [urgent, *jobs, bulk]
    assert await _ahead(backend, *order) == [0, 1, 2, 3, 4, 5]
    assert await _place(backend, urgent) == Place()
    claimed = await backend.dequeue_jobs("w", [], 2, lease_ttl_s=TTL_S)
    assert [job.id for job in claimed] == [urgent.id, jobs[0].id]
    assert await _ahead(backend, *order) == [0, 0, 0, 1, 2, 3]


async def test_only_jobs_that_may_run_are_ahead(backend: Contract, store: Store) -> None:
    parent = await submitted(backend)
    old = datetime.now(UTC) - timedelta(hours=1)
    later = {"created_at": old, "type": "t"}
    delayed = await submitted(backend, **later, delay_s=500.0)
    child = await submitted(backend, **later, depends_on=(parent.id,))
    last = await submitted(backend, type="t")
    assert await _ahead(backend, delayed, child, last) == [0, 0, 0]
    # What waits for a time or for others has its place all the same.
    first = await submitted(backend, type="t", created_at=old - timedelta(hours=1))
    assert await _ahead(backend, first, delayed, child, last) == [0, 1, 1, 1]
    await store.age(501.0)
    assert await _ahead(backend, first, delayed, child, last) == [0, 1, 2, 2]
    await backend.complete_job(parent.id, b"", token=(await claim(backend, parent)).token)
    assert await _ahead(backend, first, delayed, child, last) == [0, 1, 2, 3]


async def test_a_job_that_does_not_wait_has_nobody_ahead(backend: Contract) -> None:
    jobs = {state: (await job_in(backend, state))[0] for state in JobState}
    for state, job in jobs.items():
        old = datetime(2001, 1, 1, tzinfo=UTC)
        await submitted(backend, type=job.type, created_at=old)
        assert (await _place(backend, job)).ahead == (1 if state in ELIGIBLE else 0), state


async def test_a_job_that_is_tried_again_stands_behind(backend: Contract) -> None:
    first = await submitted(backend, type="t", max_attempts=3)
    token = (await claim(backend, first)).token
    others = [await submitted(backend, type="t") for _ in range(2)]
    await apply(backend, first, Event.FAIL, token)
    assert await _ahead(backend, first, *others) == [2, 0, 1]
    lost = others[0]
    await apply(backend, lost, Event.LOSE, (await claim(backend, lost)).token)
    assert await _ahead(backend, first, *others) == [2, 0, 1]


@pytest.mark.parametrize("event", _PARENT_ENDS)
async def test_a_place_tells_how_parents_ended(backend: Contract, event: Event) -> None:
    parents = [await submitted(backend) for _ in range(3)]
    ids = [parent.id for parent in parents]
    child = await submitted(backend, depends_on=(ids[2], ids[0], ids[1]))
    assert (await _place(backend, child)).parents == dict.fromkeys(ids)
    assert list((await _place(backend, child)).parents) == [ids[2], ids[0], ids[1]]
    token = (await claim(backend, parents[0])).token
    assert (await _place(backend, child)).parents[ids[0]] is None
    await apply(backend, parents[0], event, token)
    ends = {ids[2]: None, ids[0]: _PARENT_ENDS[event], ids[1]: None}
    assert (await _place(backend, child)).parents == ends
    assert (await _place(backend, parents[1])).parents == {}


async def test_a_place_tells_which_pauses_keep_a_job(backend: Contract) -> None:
    job, other = await submitted(backend), await submitted(backend)
    assert isinstance(backend, Pauses)
    whole = await backend.pause(Pause(namespace="default", reason="moving"))
    own = await backend.pause(Pause(namespace="default", type=job.type))
    await backend.pause(Pause(namespace="other", type=job.type))
    await backend.pause(Pause(namespace="default", type="t"))
    assert (await _place(backend, job)).pauses == (whole, own)
    assert (await _place(backend, other)).pauses == (whole,)
    # They are in nobody's way but the claim's.
    await submitted(backend, type=job.type, created_at=datetime(2001, 1, 1, tzinfo=UTC))
    assert await _ahead(backend, job) == [1]


async def test_a_place_of_a_job_that_is_not_there(backend: Contract) -> None:
    job = await submitted(backend)
    for missing in (a_job(), a_job(namespace="nowhere"), a_job(id=job.id, namespace="other")):
        with pytest.raises(JobNotFound) as raised:
            await _place(backend, missing)
        assert (raised.value.job_id, raised.value.namespace) == (missing.id, missing.namespace)
    for field in ("id", "namespace"):
        with pytest.raises(InvalidArgument):
            await _place(backend, a_job(**{field: ""}))
