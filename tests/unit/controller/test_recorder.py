"""Events: which, under which name, and how many are kept while they cannot be written."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from tests.unit.crd.test_conditions import NOW, job

from queue_operator.controller.backlog import Write
from queue_operator.controller.kube import ApiError
from queue_operator.controller.pacing import MonotonicClock
from queue_operator.controller.recorder import WAITING, EventRecorder, notice_of
from queue_operator.crd.conditions import status_of
from queue_operator.domain.job import ResourceRef
from queue_operator.domain.shown import ShownJob
from queue_operator.domain.states import JobState

PROGRESS = {
    JobState.INITIAL_PENDING,
    JobState.RUNNING,
    JobState.CANCELLING,
    JobState.FAILED_RETRY,
    JobState.COMPLETED,
}
TOLD = {
    JobState.UNKNOWN_RETRY: ("Warning", "WorkerLost"),
    JobState.DEAD_LETTER: ("Warning", "JobDeadLettered"),
    JobState.STOPPED: ("Normal", "JobCancelled"),
    JobState.UNSCHEDULED: ("Normal", "JobCancelled"),
    JobState.UNKNOWN_STOPPED: ("Warning", "StopUnconfirmed"),
}


class Api:
    """Answers as it is told to; keeps what was written."""

    def __init__(self) -> None:
        self.answer: Exception | None = None
        self.written: list[Mapping[str, Any]] = []
        self.more = asyncio.Condition()

    async def create(self, path: str, body: Mapping[str, Any]) -> Any:
        assert path == "/api/v1/namespaces/ns/events"
        async with self.more:
            self.written.append(body)
            self.more.notify_all()
        if self.answer is not None:
            raise self.answer


def write(shown: ShownJob) -> Write:
    assert shown.resource is not None
    return Write("ns", shown.resource, shown)


def test_every_state_is_progress_or_told() -> None:
    assert PROGRESS | TOLD.keys() == set(JobState)


@pytest.mark.parametrize("state", list(JobState))
def test_what_is_told_of_each_state(state: JobState) -> None:
    notice = notice_of(status_of(job(state), NOW))
    if state in PROGRESS:
        assert notice is None
    else:
        assert notice is not None
        assert (notice.kind, notice.reason) == TOLD[state]


async def run_for(recorder: EventRecorder, api: Api, count: int) -> None:
    running = asyncio.create_task(recorder.run())
    async with asyncio.timeout(20), api.more:
        await api.more.wait_for(lambda: len(api.written) >= count)
    running.cancel()


async def test_the_same_news_has_the_same_name_after_a_restart() -> None:
    api = Api()
    failed = job(JobState.DEAD_LETTER)
    for _ in range(2):
        recorder = EventRecorder(api, MonotonicClock())  # type: ignore[arg-type]
        recorder.record(write(failed), status_of(failed, NOW))
        await run_for(recorder, api, len(api.written) + 1)
    again = job(JobState.DEAD_LETTER, transition=7)
    recorder.record(write(again), status_of(again, NOW))
    await run_for(recorder, api, 3)
    names = [body["metadata"]["name"] for body in api.written]
    assert names == ["name.u1.jobdeadlettered-3"] * 2 + ["name.u1.jobdeadlettered-7"]


async def test_what_cannot_be_written_is_said_once_and_holds_nothing_up(
    caplog: pytest.LogCaptureFixture,
) -> None:
    api = Api()
    recorder = EventRecorder(api, MonotonicClock(), rate_per_s=1e6)  # type: ignore[arg-type]
    failed = job(JobState.DEAD_LETTER)
    api.answer = ApiError(403, "events is forbidden")
    for _ in range(WAITING + 5):
        recorder.record(write(failed), status_of(failed, NOW))
    await run_for(recorder, api, WAITING)
    told = [record.getMessage() for record in caplog.records]
    assert told == [
        "more Events than can be written; the statuses tell what they leave out",
        "an Event could not be written, and is left out: "
        "the API server answered 403: events is forbidden",
    ]
    assert len(api.written) == WAITING


def test_a_name_is_one_that_an_object_can_have() -> None:
    long = job(JobState.DEAD_LETTER, resource=ResourceRef("c", "u" * 36, "n" * 253, 2))
    api = Api()
    recorder = EventRecorder(api, MonotonicClock())  # type: ignore[arg-type]
    recorder.record(write(long), status_of(long, NOW))
    asyncio.run(run_for(recorder, api, 1))
    assert len(api.written[0]["metadata"]["name"]) <= 253
