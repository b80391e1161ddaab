"""Cancels that workers have or have not seen, for stores that keep track of it."""

from typing import Any, Final

import pytest

from queue_operator.backends.protocol import CancelInbox
from queue_operator.domain.errors import InvalidArgument
from queue_operator.domain.job import CancelRequest
from queue_operator.domain.lease import Held, Lost
from queue_operator.domain.states import JobState
from queue_operator.testing.driving import job_in, running, submitted
from queue_operator.testing.store import TTL_S, Contract, Store
from queue_operator.testing.wrong import IDS

_NO_TOKEN: Final = Held("a", None)  # type: ignore[arg-type]


async def _sweep(backend: Contract) -> list[Lost]:
    return await backend.expire_leases(lease_ttl_s=TTL_S)


async def _requests(backend: Contract, *assignees: str) -> set[CancelRequest]:
    assert isinstance(backend, CancelInbox)
    return set((await backend.pending_cancels(assignees)).requests)


async def test_the_inbox_has_what_the_assignees_must_be_told(store: Store) -> None:
    caller, worker = await store.open(), await store.open()
    job, token = await running(caller)
    await submitted(caller)
    await job_in(caller, JobState.RUNNING)
    assert await _requests(worker, "worker-1") == set()
    await caller.cancel_jobs([], [job.id], reason="enough")
    asked = CancelRequest(job.id, "default", "worker-1", token, False, "enough")
    assert await _requests(worker, "worker-1", "worker-2") == {asked}
    assert await _requests(worker, "worker-2") == set()
    assert await _requests(worker) == set()
    await caller.cancel_jobs([], [job.id], force=True)
    [forced] = await _requests(worker, "worker-1")
    assert (forced.job_id, forced.force, forced.reason) == (job.id, True, "enough")
    await worker.acknowledge_cancellation(job.id, True, token=token)
    assert await _requests(worker, "worker-1") == set()


async def test_the_inbox_begins_with_who_has_waited_longest(
    backend: Contract, store: Store
) -> None:
    jobs = [(await running(backend))[0] for _ in range(3)]
    for job in reversed(jobs):
        await backend.cancel_jobs([], [job.id])
        await store.age(1)
    assert isinstance(backend, CancelInbox)
    asked = (await backend.pending_cancels(["worker-1"])).requests
    assert [request.job_id for request in asked] == [job.id for job in reversed(jobs)]


async def test_a_confirmation_needs_the_current_token(backend: Contract, store: Store) -> None:
    job, _ = await running(backend)
    await backend.cancel_jobs([], [job.id])
    await _confirm(backend, job.id, "another")
    await store.age(31)
    assert await _sweep(backend) == [Lost(job.id, "default", "worker-1")]
    # And one about a job that is no more is no error.
    await _confirm(backend, "missing", "another")


async def test_a_timeout_while_cancelling_gives_the_job_up(backend: Contract, store: Store) -> None:
    job, token = await running(backend, timeout_s=10.0)
    [request] = (await backend.cancel_jobs([], [job.id])).requests
    await _confirm(backend, request.job_id, token)
    await store.age(11 + TTL_S)
    await backend.extend_leases([Held(job.id, token)], lease_ttl_s=TTL_S)
    await _sweep(backend)
    assert (await backend.get_job(job.id)).state is JobState.UNKNOWN_STOPPED


async def _confirm(backend: Contract, job_id: str, token: str) -> None:
    assert isinstance(backend, CancelInbox)
    await backend.confirm_cancels([Held(job_id, token)])


@pytest.mark.parametrize(
    ("force", "confirmed", "given_up"),
    [(True, False, True), (True, True, True), (False, False, True), (False, True, False)],
)
async def test_a_cancel_that_nobody_answers_is_given_up(
    backend: Contract, store: Store, force: bool, confirmed: bool, given_up: bool
) -> None:
    job, token = await running(backend)
    await backend.cancel_jobs([], [job.id], force=force)
    if confirmed:
        await _confirm(backend, job.id, token)
    await store.age(29)
    assert await _sweep(backend) == []
    await store.age(2)
    assert bool(await _sweep(backend)) == given_up
    expected = JobState.UNKNOWN_STOPPED if given_up else JobState.CANCELLING
    assert (await backend.get_job(job.id)).state is expected


async def test_the_time_of_a_forced_cancel_runs_from_the_force(
    backend: Contract, store: Store
) -> None:
    job, token = await running(backend)
    await backend.cancel_jobs([], [job.id])
    await _confirm(backend, job.id, token)
    await store.age(29)
    await backend.cancel_jobs([], [job.id], force=True)
    await store.age(20)
    assert await _sweep(backend) == []
    await store.age(11)
    assert len(await _sweep(backend)) == 1


async def test_a_receipt_before_the_cancel_is_none(backend: Contract, store: Store) -> None:
    job, token = await running(backend)
    await _confirm(backend, job.id, token)
    await backend.cancel_jobs([], [job.id])
    await store.age(31)
    assert await _sweep(backend) == [Lost(job.id, "default", "worker-1")]


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        (None, "received"),
        ("x", "received"),
        ([7], "received[0]"),
        ([Held("a", "t"), Held("", "t")], "received[1].job_id"),
        ([Held("a", "t", "b\x00")], "received[0].namespace"),
        ([_NO_TOKEN], "received[0].token"),
    ],
)
async def test_what_nobody_can_have_received_is_refused(
    backend: Contract, wrong: Any, field: str
) -> None:
    assert isinstance(backend, CancelInbox)
    with pytest.raises(InvalidArgument) as refused:
        await backend.confirm_cancels(wrong)
    assert refused.value.field == field


@pytest.mark.parametrize("wrong", IDS)
async def test_assignees_that_are_none_have_no_inbox(backend: Contract, wrong: Any) -> None:
    assert isinstance(backend, CancelInbox)
    with pytest.raises(InvalidArgument) as refused:
        await backend.pending_cancels(wrong)
    assert refused.value.field == "assignee_ids"
