"""What each method sends, and that both clients have the same methods."""

import inspect
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.unit.client.scripted import Answer, Asked, serving

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
    ServerError,
    Submission,
    TimeRange,
)
from queue_operator.domain.errors import InvalidArgument, QueueError
from queue_operator.domain.ordering import Priority
from queue_operator.domain.outcome import ErrorCategory
from queue_operator.domain.views import Phase

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
CALLS: list[tuple[Callable[[QueueClient], Any], str, str, Any]] = [
    (lambda q: q.get("a"), "GET", "/v1/jobs/a", None),
    (
        lambda q: q.get("a", include_result=True, include_history=True, namespace="team a"),
        "GET",
        "/v1/jobs/a?namespace=team+a&include_result=true&include_history=true",
        None,
    ),
    (lambda q: q.get("a", include_payload=True), "GET", "/v1/jobs/a?include_payload=true", None),
    (lambda q: q.explain("a"), "GET", "/v1/jobs/a/why", None),
    (
        lambda q: q.failure("a", include_all_attempts=True),
        "GET",
        "/v1/jobs/a/failure?include_all_attempts=true",
        None,
    ),
    (
        lambda q: q.cancel("a", reason="r", force=True),
        "POST",
        "/v1/jobs/a/cancel",
        {"reason": "r", "force": True},
    ),
    (lambda q: q.suspend("a", namespace="n"), "POST", "/v1/jobs/a/suspend?namespace=n", None),
    (lambda q: q.resume_job("a"), "POST", "/v1/jobs/a/resume", None),
    (lambda q: q.retry("a"), "POST", "/v1/jobs/a/retry", {"reset_attempts": False}),
    (
        lambda q: q.retry(
            "a", reset_attempts=True, priority=Priority.HIGH, delay=timedelta(seconds=90)
        ),
        "POST",
        "/v1/jobs/a/retry",
        {"reset_attempts": True, "priority": "HIGH", "delay": "PT1M30S"},
    ),
    (lambda q: q.delete("a", namespace="n"), "DELETE", "/v1/jobs/a?namespace=n", None),
    (lambda q: q.search(), "POST", "/v1/jobs/search", {}),
    (
        lambda q: q.search(
            JobSearch(
                types=("t",),
                states=(Phase.FAILED,),
                priorities=(Priority.BULK,),
                tags={"region": "eu"},
                created_after=NOON,
                limit=5,
                order=SearchOrder.CREATED_ASC,
                include_total=False,
            )
        ),
        "POST",
        "/v1/jobs/search",
        {
            "types": ["t"],
            "states": ["FAILED"],
            "priorities": ["BULK"],
            "tags": {"region": "eu"},
            "created_after": "2030-01-01T12:00:00Z",
            "limit": 5,
            "order": "CREATED_ASC",
            "include_total": False,
        },
    ),
    (
        lambda q: q.search_failures(
            FailureSearch(
                failure_category=(ErrorCategory.TIMEOUT,),
                error_code="E",
                time_range=TimeRange(after=NOON),
                pagination=Pagination(limit=7),
            )
        ),
        "POST",
        "/v1/failures/search",
        {
            "failure_category": ["TIMEOUT"],
            "error_code": "E",
            "time_range": {"after": "2030-01-01T12:00:00Z"},
            "pagination": {"limit": 7},
        },
    ),
    (
        lambda q: q.cancel_jobs(["a", "b"], reason="r", dry_run=True),
        "POST",
        "/v1/jobs/cancel",
        {"job_ids": ["a", "b"], "reason": "r", "force": False, "dry_run": True},
    ),
    (
        lambda q: q.cancel_jobs(filter=JobFilter(all=True)),
        "POST",
        "/v1/jobs/cancel",
        {"filter": {"all": True}, "reason": "", "force": False, "dry_run": False},
    ),
    (
        lambda q: q.retry_jobs(filter=FailureFilter(types=("t",))),
        "POST",
        "/v1/jobs/retry",
        {"filter": {"types": ["t"]}, "reset_attempts": False, "dry_run": False},
    ),
    (
        lambda q: q.delete_jobs(filter=JobFilter(states=(Phase.CANCELLED,)), namespace="n"),
        "POST",
        "/v1/jobs/delete?namespace=n",
        {"filter": {"states": ["CANCELLED"]}, "dry_run": False},
    ),
    (lambda q: q.stats(), "GET", "/v1/stats", None),
    (
        lambda q: q.stats(
            breakdown_by=[Breakdown.TYPE, Breakdown.STATE], time_range=timedelta(hours=1)
        ),
        "GET",
        "/v1/stats?breakdown_by=TYPE&breakdown_by=STATE&time_range=PT1H",
        None,
    ),
    (lambda q: q.verdict(), "GET", "/v1/verdict", None),
    (lambda q: q.verdict("t", namespace="n"), "GET", "/v1/verdict?namespace=n&type=t", None),
    (lambda q: q.workers(), "GET", "/v1/workers", None),
    (lambda q: q.waiting(3), "GET", "/v1/waiting?limit=3", None),
    (
        lambda q: q.failing("t", time_range=timedelta(minutes=5)),
        "GET",
        "/v1/failures/clusters?type=t&time_range=PT5M",
        None,
    ),
    (lambda q: q.series(time_range=timedelta(1)), "GET", "/v1/stats/series?time_range=P1D", None),
    (lambda q: q.access(namespace="n"), "GET", "/v1/access?namespace=n", None),
    (lambda q: q.pauses(), "GET", "/v1/pauses", None),
    (
        lambda q: q.pause("t", reason="r", namespace="n"),
        "PUT",
        "/v1/pauses?namespace=n",
        {"type": "t", "reason": "r"},
    ),
    (lambda q: q.pause(), "PUT", "/v1/pauses", {"reason": ""}),
    (lambda q: q.resume("t"), "DELETE", "/v1/pauses?type=t", None),
    (lambda q: q.resume(), "DELETE", "/v1/pauses", None),
]


@pytest.mark.parametrize(("call", "method", "path", "body"), CALLS)
def test_what_is_sent(
    call: Callable[[QueueClient], Any], method: str, path: str, body: Any
) -> None:
    with serving(Answer(500, {})) as script, QueueClient(script.url) as queue:
        with pytest.raises(ServerError):
            call(queue)
        (asked,) = script.asked
    assert (asked.method, asked.path, asked.body) == (method, path, body)
    assert asked.headers.get("content-type") == (None if body is None else "application/json")


@pytest.mark.parametrize(
    "call",
    [
        lambda q: q.cancel_jobs("abc"),
        lambda q: q.cancel_all("abc"),
        lambda q: q.cancel_all([]),
        lambda q: q.cancel_all(),
        lambda q: q.delete_all(["a"], filter=JobFilter(all=True)),
    ],
)
def test_what_selects_nothing_is_refused_and_not_sent(call: Callable[[QueueClient], Any]) -> None:
    with serving(Answer(500, {})) as script, QueueClient(script.url) as queue:
        with pytest.raises(InvalidArgument, match="job_ids"):
            call(queue)
        assert script.asked == []


def test_what_no_json_can_hold_is_refused_and_not_sent() -> None:
    with serving(Answer(500, {})) as script, QueueClient(script.url) as queue:
        with pytest.raises(InvalidArgument, match="written as JSON"):
            queue.pause("t", reason="\ud800")
        with pytest.raises(InvalidArgument, match="job_id: half a character"):
            queue.get("\ud800")
        with pytest.raises(InvalidArgument, match="namespace: cannot be written as JSON"):
            queue.get("x", namespace="\ud800")
        assert script.asked == []


UNSENDABLE = [
    ({"payload": float("nan")}, "payload"),
    ({"payload": {"a": [float("inf")]}}, "payload"),
    ({"payload": "\ud800"}, "payload"),
    ({"tags": {"\ud800": "a"}}, "tags"),
    ({"tags": {"a": "\ud800"}}, "tags"),
    ({"type": "\ud800"}, "type"),
    ({"job_id": "\ud800"}, "job_id"),
    ({"depends_on": ("\ud800",)}, "depends_on"),
]


@pytest.mark.parametrize(("fields", "field"), UNSENDABLE)
def test_what_no_request_can_hold_is_named_by_its_place(fields: dict[str, Any], field: str) -> None:
    good = Submission(type="t", payload=1)
    bad = Submission(**{"type": "t", "payload": 1, **fields})
    with serving(Answer(500, {})) as script, QueueClient(script.url) as queue:
        with pytest.raises(InvalidArgument) as raised:
            queue.submit(bad)
        assert raised.value.field == field
        with pytest.raises(InvalidArgument) as raised:
            queue.submit_batch([good, bad])
        assert raised.value.field == f"jobs[1].{field}"
        assert script.asked == []


def shape(method: Any) -> tuple[str, str]:
    """Parameters and result; the words that differ for asyncio are made the same."""
    signature = inspect.signature(method)
    text = str(signature).replace("Awaitable[None]", "None").replace("asyncio.", "time.")
    return re.sub(r"Async(Iterator)|sleep at 0x\w+", r"\1", text), inspect.getdoc(method) or ""


def test_both_clients_are_the_same() -> None:
    def public(kind: type) -> set[str]:
        return {name for name in vars(kind) if not name.startswith("_")}

    assert public(QueueClient) - {"close"} == public(AsyncQueueClient) - {"aclose"}
    for name in public(QueueClient) - {"close"}:
        assert shape(getattr(QueueClient, name)) == shape(getattr(AsyncQueueClient, name)), name


async def test_the_asynchronous_client_sends_the_same() -> None:
    def sent(asked: list[Asked]) -> list[tuple[str, str, Any]]:
        return [(one.method, one.path, one.body) for one in asked]

    with serving(Answer(500, {})) as script:
        async with AsyncQueueClient(script.url) as queue:
            for call, *_ in CALLS:
                with pytest.raises(QueueError):
                    await call(queue)  # type: ignore[arg-type]
        assert sent(script.asked) == [tuple(rest) for _, *rest in CALLS]
