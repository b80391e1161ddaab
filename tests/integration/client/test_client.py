"""Every method of the client against the real server."""

import asyncio
from datetime import timedelta
from typing import Any

import httpx
import pytest
from tests.integration.client.stage import SMALL, TOKEN, Stage

from queue_operator.backends.lookups import SearchOrder
from queue_operator.backends.statistics import Breakdown
from queue_operator.client import (
    AsyncQueueClient,
    FailureFilter,
    FailureSearch,
    JobFilter,
    JobSearch,
    Pagination,
    QueueClient,
    RetryPolicy,
    Submission,
)
from queue_operator.client.per_process import PerProcess
from queue_operator.domain.dependencies import DependencyMode
from queue_operator.domain.errors import (
    DuplicateJob,
    InvalidArgument,
    InvalidTransition,
    JobNotFound,
    KeyConflict,
    QuotaExceeded,
    Unavailable,
)
from queue_operator.domain.ordering import Priority
from queue_operator.domain.outcome import ErrorCategory
from queue_operator.domain.states import Event
from queue_operator.domain.views import Phase

HOUR = timedelta(hours=1)


def submit(stage: Stage, queue: QueueClient, **fields: Any) -> str:
    given = Submission(**{"type": "t", "payload": 1, **fields})
    job_id = queue.submit(given, namespace=stage.namespace).job_id
    assert job_id is not None
    return job_id


def test_every_option_of_a_submission_arrives(stage: Stage) -> None:
    with stage.client() as queue:
        first = submit(stage, queue, idempotency_key="k0")
        job_id = submit(
            stage,
            queue,
            job_id="mine",
            payload={"a": [1, None]},
            priority=Priority.HIGH,
            timeout=HOUR,
            max_attempts=7,
            idempotency_key="k1",
            correlation_id="c",
            tags={"region": "eu", "urgent": ""},
            depends_on=(first,),
            dependency_type=DependencyMode.CHAIN,
            callback_url="https://example.com/done",
        )
    job = stage.run(stage.queue.get_job(job_id, namespace=stage.namespace))
    assert job.priority is Priority.HIGH
    assert (job.timeout_s, job.max_attempts, job.correlation_id) == (3600.0, 7, "c")
    assert job.tags == frozenset({"region=eu", "urgent"})
    assert (job.depends_on, job.dependency_mode) == ((first,), DependencyMode.CHAIN)
    assert job.callback_url == "https://example.com/done"


def test_the_same_key_is_the_same_job(stage: Stage) -> None:
    given = Submission(type="t", payload=1, idempotency_key="k")
    with stage.client() as queue:
        first = queue.submit(given, namespace=stage.namespace)
        again = queue.submit(given, namespace=stage.namespace)
        assert (first.status, again.status) == ("ACCEPTED", "DUPLICATE")
        assert again.existing_job_id == first.job_id
        other = given.model_copy(update={"payload": 2})
        with pytest.raises(KeyConflict) as caught:
            queue.submit(other, namespace=stage.namespace)
        assert caught.value.key == "k"
        assert queue.search(namespace=stage.namespace).total_count == 1


class Losing:
    """Loses the answers of the next requests, after the server has given them. The requests are
    made as they are.
    """

    def __init__(self, client: QueueClient, losses: int) -> None:
        self._http = client._http.mine
        self.build_request = self._http.build_request
        self._losses = losses
        client._http = PerProcess(lambda: self)  # type: ignore[arg-type, return-value]

    def send(self, request: httpx.Request) -> httpx.Response:
        response = self._http.send(request)
        if self._losses:
            self._losses -= 1
            raise httpx.ReadError("the answer was lost")
        return response

    def close(self) -> None:
        self._http.close()


@pytest.mark.parametrize("own", [{}, {"job_id": "mine"}])
def test_a_job_whose_answer_was_lost_is_stored_once(stage: Stage, own: dict[str, Any]) -> None:
    given = Submission(type="t", payload=1, **own)
    with stage.client() as queue:
        Losing(queue, 2)
        result = queue.submit(given, namespace=stage.namespace)
        assert (result.status, result.job_id) == ("ACCEPTED", own.get("job_id", result.job_id))
        page = queue.search(namespace=stage.namespace)
        assert [job.job_id for job in page.jobs] == [result.job_id]


@pytest.mark.parametrize("atomic", [True, False])
def test_a_batch_whose_answer_was_lost_is_stored_once(stage: Stage, atomic: bool) -> None:
    jobs = [Submission(type="t", payload=n) for n in range(3)]
    jobs.append(Submission(type="t", payload=None, job_id="mine"))
    with stage.client() as queue:
        Losing(queue, 1)
        result = queue.submit_batch(jobs, atomic=atomic, namespace=stage.namespace)
        assert [item.status for item in result.results] == ["ACCEPTED"] * 4
        stored = {job.job_id for job in queue.search_all(namespace=stage.namespace)}
    assert stored == {item.job_id for item in result.results}


def test_a_retry_whose_answer_was_lost_is_not_sent_again(stage: Stage) -> None:
    with stage.client() as queue:
        job_id = submit(stage, queue)
        stage.fail()
        Losing(queue, 1)
        with pytest.raises(Unavailable, match="may have done it or not"):
            queue.retry(job_id, namespace=stage.namespace)
        assert queue.get(job_id, namespace=stage.namespace).state is Phase.RETRYING


def test_a_batch_of_which_some_are_refused(stage: Stage) -> None:
    jobs = [Submission(type="t", payload=None, job_id=name) for name in ("a", "b")]
    with stage.client() as queue:
        submit(stage, queue, job_id="a")
        with pytest.raises(DuplicateJob) as caught:
            queue.submit_batch(jobs, namespace=stage.namespace)
        assert (caught.value.job_ids, caught.value.indexes) == (("a",), (0,))
        result = queue.submit_batch(jobs, atomic=False, namespace=stage.namespace)
        assert [item.status for item in result.results] == ["REJECTED", "ACCEPTED"]
        assert result.results[0].error is not None
        many = [Submission(type="t", payload=n) for n in range(5)]
        told = list(queue.submit_all(many, batch_jobs=2, namespace=stage.namespace))
        assert [one.accepted for one in told] == [2, 2, 1]


def test_a_job_is_waited_for_and_told_of(stage: Stage) -> None:
    seen: list[Phase] = []
    with stage.client() as queue:
        job_id = submit(stage, queue)
        stage.complete({"n": 1})
        ended = queue.wait(
            job_id,
            timeout_s=30,
            on_status=lambda job: seen.append(job.state),
            namespace=stage.namespace,
        )
        assert (ended.result, seen) != (None, [])
        assert ended.result is not None
        assert (ended.state, ended.result.output) == (Phase.COMPLETED, {"n": 1})
        told = queue.get(job_id, include_history=True, namespace=stage.namespace)
        assert told.result is None
        assert told.history is not None
        steps = [(step.from_state, step.to_state) for step in told.history]
        assert steps == [
            (None, Phase.SCHEDULED),
            (Phase.SCHEDULED, Phase.RUNNING),
            (Phase.RUNNING, Phase.COMPLETED),
        ]


def test_why_a_job_waits(stage: Stage) -> None:
    with stage.client() as queue:
        first = submit(stage, queue)
        second = submit(stage, queue, depends_on=(first,))
        told = queue.explain(second, namespace=stage.namespace)
        assert (told.state, told.reason) == (Phase.PENDING, "DEPENDENCIES")
        assert [(parent.job_id, parent.state) for parent in told.depends_on] == [(first, None)]
        queue.pause("t", reason="r", namespace=stage.namespace)
        told = queue.explain(first, namespace=stage.namespace)
        assert (told.reason, [pause.type for pause in told.paused]) == ("PAUSED", ["t"])


def test_pauses_come_and_go(stage: Stage) -> None:
    with stage.client() as queue:
        one = queue.pause("t", reason="r", namespace=stage.namespace)
        queue.pause(namespace=stage.namespace)
        assert (one.type, one.reason, one.by) == ("t", "r", "tests")
        found = queue.pauses(namespace=stage.namespace)
        assert [pause.type for pause in found] == ["", "t"]
        assert queue.resume(namespace=stage.namespace)
        assert not queue.resume(namespace=stage.namespace)
        assert queue.resume("t", namespace=stage.namespace)
        assert queue.pauses(namespace=stage.namespace) == ()


def test_a_job_is_suspended_and_resumed(stage: Stage) -> None:
    with stage.client() as queue:
        job_id = submit(stage, queue, suspended=True)
        assert queue.get(job_id, namespace=stage.namespace).suspended
        told = queue.explain(job_id, namespace=stage.namespace)
        assert told.reason == "SUSPENDED"
        resumed = queue.resume_job(job_id, namespace=stage.namespace)
        assert (resumed.job_id, resumed.state, resumed.suspended) == (
            job_id,
            Phase.SCHEDULED,
            False,
        )
        assert queue.suspend(job_id, namespace=stage.namespace).suspended
        assert queue.get(job_id, namespace=stage.namespace).suspended


def test_a_failure_is_told_and_retried(stage: Stage) -> None:
    with stage.client() as queue:
        job_id = submit(stage, queue)
        stage.fail("SMTP_DOWN", message="no answer")
        details = queue.failure(job_id, include_all_attempts=True, namespace=stage.namespace)
        assert details.final_state is Phase.FAILED
        assert (details.failure.code, details.failure.message) == ("SMTP_DOWN", "no answer")
        assert details.attempts is not None
        assert [attempt.result for attempt in details.attempts] == ["FAILURE"]
        told = queue.retry(job_id, reset_attempts=True, delay=HOUR, namespace=stage.namespace)
        assert (told.status, told.new_state) == ("QUEUED", Phase.RETRYING)
        again = queue.cancel(job_id, reason="no more", namespace=stage.namespace)
        assert (again.status, again.previous_state) == ("CANCELLED", Phase.RETRYING)
        assert queue.retry(job_id, namespace=stage.namespace).status == "NOT_RETRIABLE"


async def test_what_a_job_logged(stage: Stage) -> None:
    def with_sync() -> str:
        with stage.client() as queue:
            submit(stage, queue)
            job_id = stage.log("sending", to="ada")
            [attempt] = queue.log(job_id, attempt=1, lines=1, namespace=stage.namespace).attempts
            [line] = attempt.lines
            assert (line.level, line.message, line.fields) == ("INFO", "sending", {"to": "ada"})
            assert queue.log(job_id, attempt=2, namespace=stage.namespace).attempts == ()
            with pytest.raises(JobNotFound):
                queue.log("missing", namespace=stage.namespace)
            return job_id

    job_id = await asyncio.to_thread(with_sync)
    async with AsyncQueueClient(stage.url, TOKEN) as queue:
        told = await queue.log(job_id, namespace=stage.namespace)
    assert (told.job_id, told.attempts[0].attempt, told.attempts[0].dropped) == (job_id, 1, 0)


def test_jobs_are_found(stage: Stage) -> None:
    with stage.client() as queue:
        for n in range(7):
            submit(stage, queue, job_id=f"j{n}", type="a" if n % 2 else "b", tags={"n": str(n)})
        page = queue.search(JobSearch(limit=3), namespace=stage.namespace)
        assert (len(page.jobs), page.total_count, page.has_more) == (3, 7, True)
        search = JobSearch(types=("a",), order=SearchOrder.CREATED_ASC, limit=2)
        found = [job.job_id for job in queue.search_all(search, namespace=stage.namespace)]
        assert found == ["j1", "j3", "j5"]
        tagged = JobSearch(tags={"n": "4"}, states=(Phase.SCHEDULED,), include_total=False)
        (one,) = queue.search(tagged, namespace=stage.namespace).jobs
        assert one.job_id == "j4"
        wrong = JobSearch(types=("b",), cursor=page.next_cursor)
        with pytest.raises(InvalidArgument, match="cursor"):
            queue.search(wrong, namespace=stage.namespace)


def test_failures_are_found_and_counted(stage: Stage) -> None:
    with stage.client() as queue:
        ids = [submit(stage, queue) for _ in range(5)]
        for code in ("A", "A", "B"):
            stage.fail(code)
        stage.fail("B", ErrorCategory.TIMEOUT)
        page = queue.search_failures(FailureSearch(), namespace=stage.namespace)
        assert (page.total_count, page.by_code) == (4, {"A": 2, "B": 2})
        assert page.by_category == {"PERMANENT": 3, "TIMEOUT": 1}
        search = FailureSearch(error_code="A", pagination=Pagination(limit=1))
        found = {one.job_id for one in queue.failures_all(search, namespace=stage.namespace)}
        assert found == set(ids[:2])


def test_many_are_changed_at_once(stage: Stage) -> None:
    with stage.client() as queue:
        ids = [submit(stage, queue) for _ in range(4)]
        stage.fail("A")
        dry = queue.retry_jobs(
            filter=FailureFilter(error_code="A"), dry_run=True, namespace=stage.namespace
        )
        assert (dry.queued, dry.dry_run) == (1, True)
        done = queue.retry_all(filter=FailureFilter(all=True), namespace=stage.namespace)
        assert (done.queued, done.failed) == (1, 0)
        some = queue.cancel_all([*ids[:2], "none"], namespace=stage.namespace)
        assert (some.requested, some.cancelled, some.failed) == (3, 2, 1)
        assert [(error.job_id, error.code) for error in some.errors] == [("none", "NOT_FOUND")]
        rest = queue.cancel_all(
            filter=JobFilter(types=("t",)), reason="r", namespace=stage.namespace
        )
        assert rest.cancelled == 2
        one = queue.delete_jobs(ids[:1], namespace=stage.namespace)
        assert one.deleted == 1
        gone = queue.delete_all(filter=JobFilter(all=True), namespace=stage.namespace)
        assert gone.deleted == 3
        with pytest.raises(InvalidArgument):
            queue.delete_jobs(filter=JobFilter(), namespace=stage.namespace)


def test_one_is_deleted_once_it_has_ended(stage: Stage) -> None:
    with stage.client() as queue:
        job_id = submit(stage, queue)
        with pytest.raises(InvalidTransition):
            queue.delete(job_id, namespace=stage.namespace)
        stage.complete()
        Losing(queue, 1)
        queue.delete(job_id, namespace=stage.namespace)
        with pytest.raises(JobNotFound):
            queue.delete(job_id, namespace=stage.namespace)
        with pytest.raises(JobNotFound):
            queue.wait(job_id, timeout_s=30, namespace=stage.namespace)


def test_the_queue_is_counted(stage: Stage) -> None:
    with stage.client() as queue:
        for _ in range(3):
            submit(stage, queue)
        stage.complete()
        stage.fail()
        told = queue.stats(breakdown_by=list(Breakdown), time_range=HOUR, namespace=stage.namespace)
    assert (told.scheduled, told.completed, told.failed, told.total) == (1, 1, 1, 3)
    assert told.submission_rate > 0
    assert told.until - told.since >= HOUR
    assert told.queue_latency.max is not None
    assert told.by_type is not None
    assert told.by_type["t"].completed == 1
    assert told.by_priority is not None
    assert told.by_state is not None


def test_a_cancel_of_a_running_job_is_a_request(stage: Stage) -> None:
    with stage.client() as queue:
        job_id = submit(stage, queue)
        job = stage.claim()
        told = queue.cancel(job_id, force=True, namespace=stage.namespace)
        assert told.status == "CANCEL_REQUESTED"
        assert queue.get(job_id, namespace=stage.namespace).cancel_requested
        stage.settle(job, Event.ACK_EXECUTING)


async def test_the_asynchronous_client_does_the_same(stage: Stage) -> None:
    where = stage.namespace
    async with AsyncQueueClient(stage.url, TOKEN, retry=RetryPolicy(attempts=1)) as queue:
        jobs = [Submission(type="t", payload=n) for n in range(3)]
        sent = [told.accepted async for told in queue.submit_all(jobs, namespace=where)]
        assert sent == [3]
        found = [job.job_id async for job in queue.search_all(namespace=where)]
        assert len(found) == 3
        await asyncio.to_thread(stage.complete)
        await asyncio.to_thread(stage.fail)
        failed = [one.job_id async for one in queue.failures_all(namespace=where)]
        assert len(failed) == 1
        assert (await queue.explain(failed[0], namespace=where)).reason == "ENDED"
        assert (await queue.wait(failed[0], timeout_s=30, namespace=where)).state is Phase.FAILED
        assert (await queue.failure(failed[0], namespace=where)).attempts is None
        assert (await queue.retry(failed[0], namespace=where)).status == "QUEUED"
        cancelled = await queue.cancel_all(filter=JobFilter(all=True), namespace=where)
        assert cancelled.cancelled == 2
        await queue.pause("t", namespace=where)
        assert len(await queue.pauses(namespace=where)) == 1
        assert await queue.resume("t", namespace=where)
        assert (await queue.stats(namespace=where)).total == 3
        await queue.delete(failed[0], namespace=where)
        assert (await queue.delete_all(found[:1], namespace=where)).requested == 1


def test_a_full_namespace_says_so(stage: Stage) -> None:
    once = RetryPolicy(attempts=1)
    with QueueClient(stage.url, TOKEN, retry=once) as queue:
        for _ in range(2):
            queue.submit(Submission(type="t", payload=None), namespace=SMALL)
        with pytest.raises(QuotaExceeded) as caught:
            queue.submit(Submission(type="t", payload=None), namespace=SMALL)
        error = caught.value
        assert (error.limit, error.current, error.maximum) == ("pending_jobs", 2, 2)
        assert error.retry_after_s
        (told,) = queue.submit_all([Submission(type="t", payload=None)], namespace=SMALL)
        assert told.results[0].error is not None
        assert told.results[0].error.code == "QUOTA_EXCEEDED"
    waited: list[float] = []

    def make_room(seconds: float) -> None:
        waited.append(seconds)
        with stage.client() as other:
            other.cancel_all(filter=JobFilter(all=True), namespace=SMALL)

    with QueueClient(stage.url, TOKEN, sleep=make_room) as queue:
        assert (
            queue.submit(Submission(type="t", payload=None), namespace=SMALL).status == "ACCEPTED"
        )
    # As long as the server said.
    assert waited[0] >= 1.0
