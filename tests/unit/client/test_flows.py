"""What takes more than one request: pages, bulk changes, batches, waiting."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.unit.client.scripted import Answer, Script, serving

from queue_operator.client import (
    AsyncQueueClient,
    FailureFilter,
    FailureSearch,
    JobFilter,
    JobSearch,
    Pagination,
    QueueClient,
    QuotaWait,
    RetryPolicy,
    Submission,
)
from queue_operator.client.flows import BATCH_BYTES, batches
from queue_operator.domain.errors import InvalidArgument, JobNotFound, QuotaExceeded, Unavailable
from queue_operator.domain.views import Phase


class Clock:
    """Time that passes only while somebody waits."""

    def __init__(self) -> None:
        self.now = 0.0
        self.pauses: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds

    async def asleep(self, seconds: float) -> None:
        self.sleep(seconds)


ONCE = RetryPolicy(attempts=1)
DOWN = Answer(503, {"code": "INTERNAL_ERROR", "message": "down"})


def client(script: Script, clock: Clock, retry: RetryPolicy = ONCE) -> QueueClient:
    return QueueClient(script.url, retry=retry, sleep=clock.sleep, clock=clock)


def job(job_id: str, state: str = "RUNNING", **others: Any) -> dict[str, Any]:
    fields = {"namespace": "n", "type": "t", "attempt": 1, "priority": "NORMAL"}
    return {"job_id": job_id, "state": state, **fields, **others}


def page(*job_ids: str, cursor: str | None = None) -> Answer:
    jobs = [job(job_id) for job_id in job_ids]
    return Answer(200, {"jobs": jobs, "next_cursor": cursor, "has_more": cursor is not None})


def failed(*job_ids: str, cursor: str | None = None) -> Answer:
    info = {
        "attempt": 1,
        "timestamp": datetime(2030, 1, 1, tzinfo=UTC).isoformat(),
        "category": "TEMPORARY",
        "code": "E",
        "message": "m",
    }
    failures = [
        {"job_id": j, "type": "t", "final_state": "FAILED", "total_attempts": 1, "failure": info}
        for j in job_ids
    ]
    return Answer(200, {"failures": failures, "total_count": 3, "next_cursor": cursor})


def test_all_pages_are_gone_through_as_they_are_asked_for() -> None:
    with serving(page("a", "b", cursor="c1"), page("c")) as script:
        with client(script, Clock()) as queue:
            found = queue.search_all(JobSearch(types=("t",)), namespace="n")
            assert next(found).job_id == "a"
            assert len(script.asked) == 1
            assert [one.job_id for one in found] == ["b", "c"]
        first, second = [asked.body for asked in script.asked]
        assert first == {"types": ["t"], "limit": 1000}
        # Counting all matches again for each page would be a waste.
        assert second == {**first, "cursor": "c1", "include_total": False}
        assert all(asked.path == "/v1/jobs/search?namespace=n" for asked in script.asked)


def test_all_failures_likewise() -> None:
    search = FailureSearch(pagination=Pagination(limit=2))
    with serving(failed("a", "b", cursor="c1"), failed("c")) as script:
        with client(script, Clock()) as queue:
            assert [one.job_id for one in queue.failures_all(search)] == ["a", "b", "c"]
        bodies = [asked.body for asked in script.asked]
    assert bodies == [
        {"pagination": {"limit": 2}},
        {"pagination": {"limit": 2, "cursor": "c1"}},
    ]


async def test_pages_of_the_asynchronous_client() -> None:
    answers = page("a", cursor="c1"), page("b"), failed("c", cursor="c2"), failed("d")
    with serving(*answers) as script:
        async with AsyncQueueClient(script.url) as queue:
            assert [one.job_id async for one in queue.search_all()] == ["a", "b"]
            assert [one.job_id async for one in queue.failures_all()] == ["c", "d"]


def done(changed: int, *, name: str = "cancelled", skipped: int = 0, more: bool = False) -> Answer:
    errors = [{"job_id": "x", "code": "NOT_FOUND", "message": "gone"}]
    return Answer(
        200,
        {
            "requested": changed + skipped + 1,
            name: changed,
            "skipped": skipped,
            "failed": 1,
            "errors": errors,
            "has_more": more,
        },
    )


def test_a_bulk_change_goes_on_while_there_are_more() -> None:
    told: list[int] = []
    with serving(done(10, more=True), done(5, skipped=2)) as script:
        with client(script, Clock()) as queue:
            total = queue.cancel_all(
                filter=JobFilter(types=("t",)),
                reason="r",
                on_result=lambda result: told.append(result.cancelled),
            )
        assert [asked.body["filter"] for asked in script.asked] == [{"types": ["t"]}] * 2
    assert (total.requested, total.cancelled, total.skipped, total.failed) == (19, 15, 2, 2)
    assert len(total.errors) == 2
    assert not total.has_more
    assert told == [10, 5]


def test_a_bulk_change_that_changes_nothing_ends() -> None:
    with serving(done(1, more=True), done(0, skipped=3, more=True)) as script:
        with client(script, Clock()) as queue:
            assert queue.cancel_all(filter=JobFilter(all=True)).has_more
        assert len(script.asked) == 2


def test_many_ids_are_sent_in_parts() -> None:
    ids = [str(n) for n in range(2500)]
    with serving(done(1000, name="deleted")) as script:
        with client(script, Clock()) as queue:
            assert queue.delete_all(iter(ids)).deleted == 3000
        sent = [asked.body["job_ids"] for asked in script.asked]
    assert [len(part) for part in sent] == [1000, 1000, 500]
    assert [job_id for part in sent for job_id in part] == ids


def test_a_bulk_retry_is_not_sent_again_when_it_may_have_happened() -> None:
    policy = RetryPolicy(attempts=3)
    with serving(Answer(0), done(1, name="queued")) as script:
        with client(script, Clock(), policy) as queue, pytest.raises(Unavailable, match="or not"):
            queue.retry_all(filter=FailureFilter(all=True))
        assert len(script.asked) == 1
        # A dry run may.
        script.answers.insert(0, Answer(0))
        with client(script, Clock(), policy) as queue:
            assert queue.retry_jobs(["a"], dry_run=True).queued == 1
        assert len(script.asked) == 3


def test_batches_are_as_large_as_a_server_takes() -> None:
    small = [Submission(type="t", payload=n) for n in range(2001)]
    assert [len(batch) for batch in batches(small)] == [1000, 1000, 1]
    large = [Submission(type="t", payload="x" * (BATCH_BYTES // 2)) for _ in range(3)]
    assert [len(batch) for batch in batches(large)] == [1, 1, 1]
    raw = [Submission(type="t", payload_bytes=bytes(BATCH_BYTES // 4)) for _ in range(4)]
    assert [len(batch) for batch in batches(raw)] == [3, 1]
    assert list(batches([])) == []


def test_any_number_of_jobs_is_sent_in_batches() -> None:
    with serving(result("a", "b")) as script, client(script, Clock()) as queue:
        jobs = (Submission(type="t", payload=n) for n in range(5))
        results = list(queue.submit_all(jobs, batch_jobs=2))
        sent = [[job["payload"] for job in asked.body["jobs"]] for asked in script.asked]
    assert len(results) == 3
    assert sent == [[0, 1], [2, 3], [4]]


def result(*items: str) -> Answer:
    full = {"code": "QUOTA_EXCEEDED", "message": "no room"}
    bad = {"code": "INVALID_REQUEST", "message": "bad"}
    errors = {"full": full, "bad": bad}
    results = [
        {"status": "REJECTED", "error": errors[one]}
        if one in errors
        else {"status": "ACCEPTED", "job_id": one}
        for one in items
    ]
    rejected = sum(one in errors for one in items)
    body = {"total": len(items), "accepted": len(items) - rejected, "rejected": rejected}
    return Answer(200, {**body, "results": results})


def test_jobs_without_room_are_sent_again_until_there_is_some() -> None:
    clock = Clock()
    policy = RetryPolicy(attempts=3, initial_delay_s=1, max_delay_s=8, rng=lambda: 1.0)
    # Between two refusals some get in: the count of tries begins anew.
    answers = [
        result("a", "full", "bad", "full"),
        result("full", "full"),
        result("b", "full"),
        result("full"),
        result("d"),
    ]
    jobs = [Submission(type="t", payload=n) for n in range(4)]
    with serving(*answers) as script, client(script, clock, policy) as queue:
        (told,) = queue.submit_all(jobs)
    assert [item.job_id for item in told.results] == ["a", "b", None, "d"]
    assert (told.total, told.accepted, told.rejected) == (4, 3, 1)
    sent = [[job["payload"] for job in asked.body["jobs"]] for asked in script.asked]
    assert sent == [[0, 1, 2, 3], [1, 3], [1, 3], [3], [3]]
    assert clock.pauses == [1, 2, 1, 2]


def without_room(retry_after: str, jobs: int = 1) -> Answer:
    quota = {"limit": "pending_jobs", "current": 9, "maximum": 9, "retry_after": retry_after}
    error = {"code": "QUOTA_EXCEEDED", "message": "no room", "quota": quota}
    results = [{"status": "REJECTED", "error": error}] * jobs
    return Answer(200, {"total": jobs, "accepted": 0, "rejected": jobs, "results": results})


def test_a_quota_is_waited_for_as_long_as_it_says_and_told() -> None:
    policy = RetryPolicy(attempts=5, initial_delay_s=1, max_delay_s=8, rng=lambda: 1.0)
    clock, told = Clock(), list[QuotaWait]()
    answers = [without_room("PT5S", 2), without_room("PT5S", 2), result("a", "full"), result("b")]
    jobs = [Submission(type="t", payload=n) for n in range(2)]
    with serving(*answers) as script, client(script, clock, policy) as queue:
        (batch,) = queue.submit_all(jobs, on_wait=told.append)
    assert batch.accepted == 2
    assert clock.pauses == [5, 5, 1]
    assert [(one.jobs, one.seconds, one.waited_s, one.tries) for one in told] == [
        (2, 5, 0, 1),
        (2, 5, 5, 2),
        (1, 1, 0, 1),
    ]
    quotas = [None if one.quota is None else one.quota.limit for one in told]
    # The last server tells less.
    assert quotas == ["pending_jobs", "pending_jobs", None]


def test_a_quota_that_takes_longer_than_we_wait_is_not_waited_for() -> None:
    patient = RetryPolicy(attempts=3, max_delay_s=1, max_quota_delay_s=3600, rng=lambda: 0.0)
    for policy, asked in ((RetryPolicy(attempts=3), 1), (patient, 3)):
        clock = Clock()
        with (
            serving(without_room("PT30M")) as script,
            client(script, clock, policy) as queue,
        ):
            (told,) = queue.submit_all([Submission(type="t", payload=None)])
        assert (told.rejected, len(script.asked)) == (1, asked)
        assert clock.pauses == [1800.0] * (asked - 1)


def test_more_at_once_than_may_ever_wait_is_not_sent_again() -> None:
    quota = {"limit": "pending_jobs", "current": 0, "maximum": 2, "retry_after": "PT1S"}
    body = {"code": "QUOTA_EXCEEDED", "message": "no room", "quota": quota}
    full = Answer(429, body, {"retry-after": "1"})
    policy = RetryPolicy(attempts=3, rng=lambda: 0.0)
    for count, asked in ((3, 1), (2, 3)):
        with serving(full) as script, client(script, Clock(), policy) as queue:
            with pytest.raises(QuotaExceeded):
                queue.submit_batch([Submission(type="t", payload=None)] * count)
            assert len(script.asked) == asked


def test_jobs_for_which_no_room_comes_are_rejected_in_the_end() -> None:
    policy = RetryPolicy(attempts=3, initial_delay_s=1, rng=lambda: 1.0)
    clock = Clock()
    with serving(result("full")) as script, client(script, clock, policy) as queue:
        (told,) = queue.submit_all([Submission(type="t", payload=None)])
    assert (told.rejected, len(script.asked)) == (1, 3)


def test_waiting_ends_with_the_job() -> None:
    clock, seen = Clock(), list[str]()
    states = [Answer(200, job("a", state)) for state in ("SCHEDULED", "RUNNING", "COMPLETED")]
    with serving(*states) as script, client(script, clock) as queue:
        ended = queue.wait("a", on_status=lambda status: seen.append(status.state))
    assert ended.state == "COMPLETED"
    assert seen == ["SCHEDULED", "RUNNING", "COMPLETED"]
    assert clock.pauses == pytest.approx([0.1, 0.15])
    assert all(asked.path.endswith("include_result=true") for asked in script.asked)


def test_pauses_between_looks_grow_up_to_a_bound() -> None:
    clock = Clock()
    states = [Answer(200, job("a"))] * 9 + [Answer(200, job("a", "FAILED"))]
    with serving(*states) as script, client(script, clock) as queue:
        queue.wait("a", poll_s=0.4)
    assert clock.pauses == pytest.approx([0.1, 0.15, 0.225, 0.3375, *[0.4] * 5])


def test_waiting_ends_after_the_time_that_was_given() -> None:
    clock = Clock()
    with (
        serving(Answer(200, job("a"))) as script,
        client(script, clock) as queue,
        pytest.raises(TimeoutError, match="'a' has not ended within 5 s: RUNNING"),
    ):
        queue.wait("a", timeout_s=5)
    assert clock.now == 5.0


def test_an_outage_is_waited_out() -> None:
    clock = Clock()
    answers = [Answer(200, job("a")), DOWN, DOWN, Answer(200, job("a", "COMPLETED"))]
    with serving(*answers) as script, client(script, clock) as queue:
        assert queue.wait("a").is_finished
    assert len(script.asked) == 4


def test_a_long_outage_is_an_error() -> None:
    clock = Clock()
    with serving(DOWN) as script, client(script, clock) as queue, pytest.raises(Unavailable):
        queue.wait("a", outage_s=10)
    assert 10 <= clock.now < 13


def test_a_job_that_is_not_there_is_not_waited_for() -> None:
    missing = Answer(404, {"code": "NOT_FOUND", "message": "no such job"})
    with serving(missing) as script, client(script, Clock()) as queue, pytest.raises(JobNotFound):
        queue.wait("a")


@pytest.mark.parametrize("state", Phase)
def test_what_is_waited_for(state: Phase) -> None:
    with serving(Answer(200, job("a", state))) as script, client(script, Clock()) as queue:
        ended = {"COMPLETED", "FAILED", "DEAD_LETTER", "CANCELLED"}
        assert queue.get("a").is_finished == (state in ended)


async def test_the_asynchronous_client_waits_and_changes_likewise() -> None:
    clock = Clock()
    states = [Answer(200, job("a", state)) for state in ("RUNNING", "COMPLETED")]
    bulk = [done(1, name="queued", more=True), done(1, name="queued")]
    with serving(*states, *bulk) as script:
        async with AsyncQueueClient(script.url, sleep=clock.asleep, clock=clock) as queue:
            assert (await queue.wait("a")).state == "COMPLETED"
            assert (await queue.retry_all(filter=FailureFilter(all=True))).queued == 2
    assert clock.pauses == pytest.approx([0.1])


async def test_jobs_are_sent_in_batches_by_the_asynchronous_client_too() -> None:
    with serving(result("a", "b")) as script:
        async with AsyncQueueClient(script.url) as queue:
            jobs = [Submission(type="t", payload=n) for n in range(3)]
            sent: AsyncIterator[Any] = queue.submit_all(jobs, batch_jobs=2)
            assert len([told async for told in sent]) == 2


def stored(*statuses: str) -> Answer:
    results = [{"job_id": f"j{n}", "status": status} for n, status in enumerate(statuses)]
    body = {"total": len(results), "accepted": len(results), "rejected": 0}
    return Answer(200, {**body, "results": results})


def test_what_no_request_can_hold_is_rejected_alone() -> None:
    jobs = [Submission(type="t", payload=n) for n in (0, float("nan"), 2)]
    with serving(stored("ACCEPTED", "ACCEPTED")) as script, client(script, Clock()) as queue:
        [told] = queue.submit_all(jobs)
        assert [job["payload"] for job in script.asked[0].body["jobs"]] == [0, 2]
    assert (told.total, told.accepted, told.rejected) == (3, 2, 1)
    assert [item.job_id for item in told.results] == ["j0", None, "j1"]
    error = told.results[1].error
    assert error is not None
    assert error.code == "INVALID_REQUEST"
    assert error.message.startswith("payload: cannot be written as JSON")


def test_a_batch_of_nothing_that_can_be_sent_asks_nobody() -> None:
    jobs = [Submission(type="t", payload=float("inf"), job_id="x")]
    with serving(Answer(500, {})) as script, client(script, Clock()) as queue:
        [told] = queue.submit_all(jobs)
        assert script.asked == []
    assert [(item.job_id, item.status) for item in told.results] == [("x", "REJECTED")]


def too_large(field: str = "body") -> Answer:
    detail = {"field": field, "code": "PAYLOAD_TOO_LARGE", "message": "is over the limit"}
    return Answer(413, {"code": "INVALID_REQUEST", "message": "no", "details": [detail]})


async def test_a_request_that_is_refused_as_a_whole_is_sent_again_by_halves() -> None:
    jobs = [Submission(type="t", payload=n) for n in range(4)]
    answers = (too_large(), too_large(), stored("ACCEPTED"), too_large(), stored(*["ACCEPTED"] * 2))
    with serving(*answers) as script:
        async with AsyncQueueClient(script.url, retry=ONCE) as queue:
            [told] = [batch async for batch in queue.submit_all(jobs)]
        sent = [[job["payload"] for job in asked.body["jobs"]] for asked in script.asked]
    assert sent == [[0, 1, 2, 3], [0, 1], [0], [1], [2, 3]]
    statuses = ["ACCEPTED", "REJECTED", "ACCEPTED", "ACCEPTED"]
    assert [item.status for item in told.results] == statuses
    error = told.results[1].error
    assert error is not None
    assert error.message == "body: is over the limit"


def test_a_batch_that_is_refused_for_something_else_is_not_taken_apart() -> None:
    jobs = [Submission(type="t", payload=n) for n in range(4)]
    with serving(too_large("namespace")) as script, client(script, Clock()) as queue:
        with pytest.raises(InvalidArgument, match="namespace"):
            list(queue.submit_all(jobs))
        assert len(script.asked) == 1
