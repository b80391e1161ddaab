"""Checkpoints of running jobs, for stores that keep them."""

from typing import Final

import pytest

from queue_operator.backends.protocol import CheckpointAnswer, CheckpointReport, Checkpoints
from queue_operator.domain.errors import InvalidArgument, PayloadTooLarge, StaleLease
from queue_operator.domain.job import Job
from queue_operator.domain.states import Event, JobState
from queue_operator.domain.validation import Limits
from queue_operator.testing.breaking import needs_the_store
from queue_operator.testing.clauses import proves
from queue_operator.testing.driving import apply, claim, happens, job_in, passed, running, submitted
from queue_operator.testing.store import TTL_S, Contract, Store
from queue_operator.testing.table import CHECKPOINTING, TERMINAL
from queue_operator.testing.walking import walk

_NEVER: Final = "00000000-0000-4000-8000-000000000000"


def _report(job: Job, token: str, data: bytes, number: int = 1) -> CheckpointReport:
    return CheckpointReport(job_id=job.id, token=token, number=number, data=data)


async def _store(backend: Contract, *reports: CheckpointReport) -> list[CheckpointAnswer]:
    assert isinstance(backend, Checkpoints)
    return await backend.store_checkpoints(reports)


async def _kept(backend: Contract, job: Job, token: str, data: bytes, number: int = 1) -> bool:
    [answer] = await _store(backend, _report(job, token, data, number))
    assert answer.job_id == job.id
    return answer.error is None


async def test_a_claim_brings_the_checkpoint_of_its_job_alone(backend: Contract) -> None:
    job, token = await running(backend)
    other, other_token = await running(backend)
    await _store(backend, _report(job, token, b"half"), _report(other, other_token, b""))
    plain, plain_token = await running(backend)
    for one, its_token in ((job, token), (other, other_token), (plain, plain_token)):
        await apply(backend, one, Event.FAIL, its_token)
    assert (await claim(backend, job)).checkpoint == b"half"
    assert (await claim(backend, other)).checkpoint == b""
    assert (await claim(backend, plain)).checkpoint is None


async def test_a_first_claim_brings_none(backend: Contract) -> None:
    assert (await claim(backend, await submitted(backend))).checkpoint is None


@pytest.mark.parametrize("event", [Event.FAIL, Event.LOSE, Event.HAND_BACK, Event.RELEASE])
async def test_a_checkpoint_outlives_an_attempt_however_it_ends(
    backend: Contract, store: Store, event: Event
) -> None:
    job, token = await running(backend)
    assert await _kept(backend, job, token, b"\x00\xffhalf")
    await apply(backend, job, event, token)
    again = await claim(backend, job, "worker-2")
    assert again.checkpoint == b"\x00\xffhalf"
    # Also if the next attempt stores none.
    await apply(backend, job, event, again.token)
    await passed(backend, store, 100)
    assert (await claim(backend, job)).checkpoint == b"\x00\xffhalf"


async def test_the_newest_checkpoint_wins(backend: Contract) -> None:
    job, token = await running(backend)
    assert await _kept(backend, job, token, b"1")
    first = _report(job, token, b"3", 3)
    answers = await _store(backend, first, _report(job, token, b"2", 2))
    assert [answer.error for answer in answers] == [None, None]
    # One that was overtaken on its way is known to be out of date, which is no fault.
    assert await _kept(backend, job, token, b"1 again")
    await apply(backend, job, Event.FAIL, token)
    again = await claim(backend, job)
    assert again.checkpoint == b"3"
    # The next run counts from one again.
    assert await _kept(backend, job, again.token, b"4", 1)
    await apply(backend, job, Event.FAIL, again.token)
    assert (await claim(backend, job)).checkpoint == b"4"


@proves("external-api.JobContext.expect.2")
async def test_a_checkpoint_under_a_stale_token_is_refused(backend: Contract) -> None:
    job, old = await running(backend)
    await apply(backend, job, Event.LOSE, old)
    again = await claim(backend, job, "worker-2")
    missing = Job(id="missing", type="t")
    mixed = [
        _report(job, old, b"old", 9),
        _report(job, again.token, b"new"),
        _report(job, _NEVER, b"never", 9),
        _report(job, "no token at all", b"never", 9),
        _report(missing, old, b"x"),
    ]
    answers = await _store(backend, *mixed)
    assert [type(answer.error) for answer in answers] == [
        StaleLease,
        type(None),
        StaleLease,
        StaleLease,
        StaleLease,
    ]
    await apply(backend, job, Event.FAIL, again.token)
    assert (await claim(backend, job)).checkpoint == b"new"


@pytest.mark.parametrize("state", JobState)
async def test_who_may_complete_a_job_may_store_its_checkpoint(
    backend: Contract, state: JobState
) -> None:
    job, token = await job_in(backend, state)
    assert await _kept(backend, job, token or _NEVER, b"x") == (state in CHECKPOINTING)


async def test_a_lost_job_takes_its_checkpoint_along(backend: Contract) -> None:
    job, token = await running(backend)
    await apply(backend, job, Event.LOSE, token)
    assert await _kept(backend, job, token, b"late")
    assert (await claim(backend, job)).checkpoint == b"late"
    assert not await _kept(backend, job, token, b"too late")


@pytest.mark.parametrize("force", [False, True])
async def test_a_checkpoint_tells_of_a_cancel(backend: Contract, force: bool) -> None:
    job, token = await running(backend)
    await backend.cancel_jobs([], [job.id], force=force)
    [answer] = await _store(backend, _report(job, token, b"x"))
    assert (answer.error, answer.cancel_requested, answer.cancel_forced) == (None, True, force)


@pytest.mark.parametrize(
    ("event", "ended"), [(Event.EXHAUST, JobState.DEAD_LETTER), (Event.STOP, JobState.STOPPED)]
)
async def test_a_checkpoint_ends_with_its_job(
    backend: Contract, event: Event, ended: JobState
) -> None:
    job, token = await running(backend)
    assert await _kept(backend, job, token, b"x")
    assert (await apply(backend, job, event, token)).state is ended
    if ended is JobState.DEAD_LETTER:
        await apply(backend, job, Event.RETRY_NOW)
        assert (await claim(backend, job)).checkpoint is None


@pytest.mark.parametrize("state", [state for state in JobState if state in CHECKPOINTING])
async def test_a_job_with_a_checkpoint_goes_wherever_others_go(
    store: Store, state: JobState
) -> None:
    """The store is searched for what was left behind when the test is over."""
    backend = await store.open()
    for event in Event:
        job, token = await job_in(backend, state)
        assert await _kept(backend, job, token or "", b"x")
        await happens(backend, job, event, token)
        if (await backend.get_job(job.id)).state in TERMINAL:
            assert await backend.delete_jobs([], [job.id]) == 1


async def test_a_waiting_job_that_is_cancelled_drops_its_checkpoint(backend: Contract) -> None:
    job, token = await running(backend)
    assert await _kept(backend, job, token, b"x")
    await apply(backend, job, Event.FAIL, token)
    await backend.cancel_jobs([], [job.id])
    assert (await backend.get_job(job.id)).state is JobState.STOPPED


async def test_a_checkpoint_completes_with_its_job_at_once(backend: Contract) -> None:
    """Though jobs with one cannot take the fastest way."""
    job, token = await running(backend)
    plain, plain_token = await running(backend)
    assert await _kept(backend, job, token, b"x")
    for one, its_token in ((job, token), (plain, plain_token)):
        settled = await apply(backend, one, Event.COMPLETE, its_token)
        assert (settled.error, settled.state) == (None, JobState.COMPLETED)
        assert (await backend.get_job(one.id)).result == b"done"


async def test_an_expired_lease_leaves_the_checkpoint_to_the_next(store: Store) -> None:
    backend = await store.open()
    job, token = await running(backend)
    assert await _kept(backend, job, token, b"half")
    await store.age(TTL_S + 1)
    assert [lost.job_id for lost in await backend.expire_leases(lease_ttl_s=TTL_S)] == [job.id]
    assert (await claim(backend, job, "worker-2")).checkpoint == b"half"


async def test_too_large_a_checkpoint_is_refused_and_its_neighbour_is_not(store: Store) -> None:
    backend = await store.open(limits=Limits(checkpoint_bytes=4))
    job, token = await running(backend)
    large, good = await _store(
        backend, _report(job, token, b"12345", 2), _report(job, token, b"1234")
    )
    assert isinstance(large.error, PayloadTooLarge)
    assert (large.error.field, large.error.size, large.error.limit) == ("checkpoint", 5, 4)
    assert good.error is None
    await apply(backend, job, Event.FAIL, token)
    assert (await claim(backend, job)).checkpoint == b"1234"


async def test_a_report_that_makes_no_sense_is_named(backend: Contract) -> None:
    job, token = await running(backend)
    wrong = [
        _report(job, token, b"x", 0),
        _report(Job(id="", type="t"), token, b"x"),
        _report(job, None, b"x"),  # type: ignore[arg-type]
        _report(job, token, "text"),  # type: ignore[arg-type]
    ]
    fields = []
    for answer in await _store(backend, *wrong):
        assert isinstance(answer.error, InvalidArgument)
        fields.append(answer.error.field)
    assert fields == ["number", "job_id", "token", "checkpoint"]
    with pytest.raises(InvalidArgument, match=r"reports\[0\]"):
        await _store(backend, "no report")  # type: ignore[arg-type]
    assert await _store(backend) == []


async def test_a_store_that_is_away_is_unavailable(backend: Contract, store: Store) -> None:
    job, token = await running(backend)
    await needs_the_store(store, backend, lambda: _store(backend, _report(job, token, b"x")))


async def test_a_checkpoint_is_there_for_the_next_process(store: Store) -> None:
    backend = await store.open()
    job, token = await running(backend)
    assert await _kept(backend, job, token, bytes(range(256)) * 4096)
    await backend.close()
    if not store.durable:
        return
    again = await store.open()
    await apply(again, job, Event.LOSE, token)
    assert (await claim(again, job)).checkpoint == bytes(range(256)) * 4096


async def test_a_cancelled_checkpoint_is_stored_by_a_repeat(backend: Contract) -> None:
    async def bring() -> tuple[Job, str]:
        return await running(backend)

    async def call(one: tuple[Job, str]) -> bool:
        return await _kept(backend, *one, b"half")

    async for one in walk(bring, call):
        job, token = one.subject
        assert await _kept(backend, job, token, b"half"), one
        await apply(backend, job, Event.LOSE, token)
        assert (await claim(backend, job)).checkpoint == b"half", one
