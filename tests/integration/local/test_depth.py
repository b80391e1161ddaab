"""Counts for gauges."""

from tests.integration.local.conftest import Local, LocalStore

from queue_operator.backends.protocol import Depths
from queue_operator.domain.job import Job
from queue_operator.domain.states import JobState


async def test_jobs_by_namespace_type_and_state(backend: Local) -> None:
    assert isinstance(backend, Depths)
    await backend.enqueue_jobs([Job(id=f"m-{n}", type="mail") for n in range(5)])
    await backend.enqueue_job(Job(id="s", type="sms"))
    await backend.enqueue_job(Job(id="m-0", type="mail", namespace="other"))
    taken = await backend.dequeue_jobs("w", [], 3)
    await backend.complete_job(taken[0].id, b"")
    await backend.fail_job(taken[1].id, "no route")
    await backend.cancel_jobs([], [taken[2].id])
    assert (await backend.queue_depth()).jobs == {
        ("default", "mail", JobState.INITIAL_PENDING): 2,
        ("default", "mail", JobState.COMPLETED): 1,
        ("default", "mail", JobState.FAILED_RETRY): 1,
        ("default", "mail", JobState.CANCELLING): 1,
        ("default", "sms", JobState.INITIAL_PENDING): 1,
        ("other", "mail", JobState.INITIAL_PENDING): 1,
    }


async def test_age_counts_from_when_the_oldest_could_run(store: LocalStore, backend: Local) -> None:
    await backend.enqueue_job(Job(id="old", type="mail", delay_s=100.0))
    await backend.enqueue_job(Job(id="late", type="sms", delay_s=7200.0))
    await backend.enqueue_job(Job(id="waiting", type="child", depends_on=("late",)))
    store.clock.advance(3700)
    await backend.enqueue_job(Job(id="young", type="mail"))
    ages = (await backend.queue_depth()).oldest_age_s
    assert set(ages) == {("default", "mail")}
    assert 3600 <= ages["default", "mail"] < 3601


async def test_no_age_without_waiting_jobs(backend: Local) -> None:
    await backend.enqueue_job(Job(id="a", type="t"))
    await backend.dequeue_jobs("w", [], 1)
    assert (await backend.queue_depth()).oldest_age_s == {}
