"""A wrong argument is refused with the name of its field, and nothing is written."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Any, Final

import pytest

from queue_operator.domain.errors import InvalidArgument, PayloadTooLarge
from queue_operator.domain.job import Demand, Job, Progress, ResourceRef
from queue_operator.domain.lease import Held
from queue_operator.domain.outcome import ErrorInfo
from queue_operator.domain.retry import Backoff, BackoffStrategy
from queue_operator.domain.states import JobState
from queue_operator.domain.validation import Limits
from queue_operator.testing.clauses import proves
from queue_operator.testing.driving import running, submitted
from queue_operator.testing.store import Contract, Store

_GOOD: Final = Job(id="x", type="t")
_NOW: Final = datetime(2024, 1, 1, tzinfo=UTC)
_NAIVE: Final = datetime(2024, 1, 1)
_INF: Final = float("inf")
_NAN: Final = float("nan")
_TEN_KB: Final = "x" * 10_240
_UNSTORABLE: Final = ("", "a\x00b", "\ud800", "a\udfffb", "x" * 256, _TEN_KB, None, 7, b"x", ["x"])


class _Nowhere(tzinfo):
    """A time zone that does not say how far from UTC it is."""

    def utcoffset(self, at: datetime | None) -> None:
        return None

    def dst(self, at: datetime | None) -> None:
        return None

    def tzname(self, at: datetime | None) -> None:
        return None


_BEYOND: Final = datetime.max.replace(tzinfo=timezone(timedelta(hours=-14)))
_TIMES: Final = (_NAIVE, datetime(2024, 1, 1, tzinfo=_Nowhere()), _BEYOND, "2024-01-01", 7)

_DELAYS: Final = (-1.0, _INF, -_INF, _NAN, 1e12, 10**400, "1", True)

_WRONG: Final[dict[str, tuple[Any, ...]]] = {
    "id": _UNSTORABLE,
    "type": _UNSTORABLE,
    "namespace": _UNSTORABLE,
    "content_type": _UNSTORABLE,
    "payload": ("text", None, bytearray(b"x"), memoryview(b"x")),
    "tags": (
        "tag",
        None,
        ["a"],
        {"a": "b"},
        frozenset({""}),
        frozenset({7}),
        frozenset({"a\x00"}),
        frozenset({"x" * 129}),
        frozenset({f"t{n}" for n in range(33)}),
    ),
    "priority": ("HIGH", None, 1),
    "created_at": _TIMES,
    "scheduled_at": _TIMES,
    "delay": _DELAYS,
    "timeout": (0, 0.0, *_DELAYS),
    "max_attempts": (-1, 101, 1.5, "3", True, _NAN, 10**400),
    "correlation_id": _UNSTORABLE[1:],
    "idempotency_key": _UNSTORABLE[1:],
    "depends_on": ("a", None, {"a"}, ("a", "a"), tuple(map(str, range(1001)))),
    "depends_on[0]": (("",), ("a\x00",), (7,), (_TEN_KB,), ("x",)),
    "dependency_mode": ("AFTER", None),
    "backoff": ("CONSTANT", {}),
    "backoff.strategy": (Backoff("CONSTANT"),),  # type: ignore[arg-type]
    "backoff.initial_delay": tuple(Backoff(initial_delay_s=d) for d in _DELAYS),  # type: ignore[arg-type]
    "backoff.max_delay": tuple(Backoff(max_delay_s=d) for d in _DELAYS),  # type: ignore[arg-type]
    "backoff.multiplier": tuple(Backoff(multiplier=m) for m in (0.5, 0, _INF, _NAN, "2", True)),  # type: ignore[arg-type]
    "backoff.delays": (
        Backoff(BackoffStrategy.CUSTOM),
        Backoff(delays_s=(1.0,)),
        Backoff(BackoffStrategy.CUSTOM, delays_s=[1.0]),  # type: ignore[arg-type]
    ),
    "backoff.delays[1]": tuple(
        Backoff(BackoffStrategy.CUSTOM, delays_s=(1.0, delay))  # type: ignore[arg-type]
        for delay in _DELAYS
    ),
    "resource": ("uid", {}),
    "resource.uid": (ResourceRef("c", "a\x00", "n"), ResourceRef("c", "", "n")),
    "resource.name": (ResourceRef("c", "u", "\ud800"), ResourceRef("c", "u", None)),  # type: ignore[arg-type]
    "resource.generation": (ResourceRef("c", "u", "n", 2**63), ResourceRef("c", "u", "n", 0)),
    "state": (*sorted(set(JobState) - {JobState.INITIAL_PENDING}), "x", None),
    "assignee_id": ("w",),
    "worker_name": ("w",),
    "assigned_at": (_NOW,),
    "started_at": (_NOW,),
    "finalized_at": (_NOW,),
    "updated_at": (_NOW,),
    "eligible_at": (_NOW,),
    "last_retry_at": (_NOW,),
    "error": (ErrorInfo("x"),),
    "result": (b"x", b""),
    "retry_count": (1,),
    "failure_count": (1,),
    "attempt": (1,),
    "lease_version": (1,),
    "transition": (1,),
    "reason": ("x",),
    "cancel_reason": ("x",),
    "waiting_for_dependencies": (True,),
    "progress": (Progress(1, "x", _NOW),),
}
# Fields of a Job that are called otherwise where a caller writes them.
_ATTRIBUTE: Final = {"delay": "delay_s", "timeout": "timeout_s"}


@proves(
    "backend-api.EnqueueJob.error.4",
    "backend-api.EnqueueJobs.error.1",
    "backend-api.ErrorConditions.error.5",
)
@pytest.mark.parametrize("field", _WRONG)
async def test_a_bad_job_is_refused_alone_and_in_a_batch(backend: Contract, field: str) -> None:
    name = field.partition(".")[0].partition("[")[0]
    for value in _WRONG[field]:
        bad = replace(_GOOD, **{_ATTRIBUTE.get(name, name): value})
        with pytest.raises(InvalidArgument) as alone:
            await backend.enqueue_job(bad)
        assert alone.value.field == field, value
        with pytest.raises(InvalidArgument) as in_batch:
            await backend.enqueue_jobs([replace(_GOOD, id="good"), bad])
        assert in_batch.value.field == f"jobs[1].{field}", value
    assert (await backend.get_job_stats([])).total_jobs == 0


@proves("backend-api.ErrorConditions.error.5")
async def test_a_delay_and_a_time_together_are_refused(backend: Contract) -> None:
    with pytest.raises(InvalidArgument) as raised:
        await backend.enqueue_job(replace(_GOOD, delay_s=1.0, scheduled_at=_NOW))
    assert raised.value.field == "delay"


async def test_a_payload_over_the_limit_is_refused_with_its_size(store: Store) -> None:
    backend = await store.open(limits=Limits(payload_bytes=10))
    await backend.enqueue_job(replace(_GOOD, payload=b"x" * 10))
    with pytest.raises(PayloadTooLarge) as raised:
        await backend.enqueue_job(replace(_GOOD, id="y", payload=b"x" * 11))
    assert (raised.value.field, raised.value.size, raised.value.limit) == ("payload", 11, 10)
    with pytest.raises(PayloadTooLarge) as in_batch:
        await backend.enqueue_jobs([replace(_GOOD, id="z"), replace(_GOOD, payload=b"x" * 11)])
    assert in_batch.value.field == "jobs[1].payload"
    assert (await backend.get_job_stats([])).total_jobs == 1


_Call = Callable[[Contract, Any], Awaitable[object]]

_LIMITS: Final = (0, -1, 1.0, _INF, _NAN, True, "1", None, 10**9)
_TTLS: Final = (0, -1, -0.5, _NAN, _INF, -_INF, "1", True, 10**400, 1e12)
_TAGS: Final = (
    "tag",
    None,
    [""],
    [7],
    ["a\x00"],
    [_TEN_KB],
    {"a": "b"},
    [f"{n}" for n in range(33)],
)
_IDS: Final = ("live", None, [""], [7], ["a\x00"], [_TEN_KB], {"a": "b"})
_TEXTS: Final = ("a\x00b", "\ud800", None, 7, b"x")


def _demand(**change: Any) -> list[Demand]:
    return [Demand(**{"assignee_id": "w", "limit": 1, **change})]


_CALLS: Final[list[tuple[str, str, _Call, tuple[Any, ...]]]] = [
    ("dequeue", "assignee_id", lambda b, x: b.dequeue_jobs(x, [], 1), _UNSTORABLE),
    ("dequeue", "tags", lambda b, x: b.dequeue_jobs("w", x, 1), _TAGS),
    ("dequeue", "limit", lambda b, x: b.dequeue_jobs("w", [], x), _LIMITS),
    ("dequeue", "namespace", lambda b, x: b.dequeue_jobs("w", [], 1, namespace=x), _UNSTORABLE),
    ("dequeue", "lease_ttl_s", lambda b, x: b.dequeue_jobs("w", [], 1, lease_ttl_s=x), _TTLS),
    ("claim", "lease_ttl_s", lambda b, x: b.claim(_demand(), lease_ttl_s=x), _TTLS),
    ("claim", "demands", lambda b, x: b.claim(x, lease_ttl_s=5), (None, "w", [None], ["w"])),
    (
        "claim",
        "assignee_id",
        lambda b, x: b.claim(_demand(assignee_id=x), lease_ttl_s=5),
        _UNSTORABLE,
    ),
    ("claim", "limit", lambda b, x: b.claim(_demand(limit=x), lease_ttl_s=5), _LIMITS),
    ("claim", "namespace", lambda b, x: b.claim(_demand(namespace=x), lease_ttl_s=5), _UNSTORABLE),
    ("claim", "tags", lambda b, x: b.claim(_demand(tags=x), lease_ttl_s=5), _TAGS),
    ("claim", "types", lambda b, x: b.claim(_demand(types=x), lease_ttl_s=5), ("t", [""], [7])),
    ("claim", "host", lambda b, x: b.claim(_demand(host=x), lease_ttl_s=5), _TEXTS),
    ("complete", "job_id", lambda b, x: b.complete_job(x, b""), _UNSTORABLE),
    ("complete", "result", lambda b, x: b.complete_job("live", x), ("text", None, 7)),
    ("complete", "namespace", lambda b, x: b.complete_job("live", b"", namespace=x), _UNSTORABLE),
    ("complete", "token", lambda b, x: b.complete_job("live", b"", token=x), (7, b"x", ["x"])),
    ("fail", "job_id", lambda b, x: b.fail_job(x, "boom"), _UNSTORABLE),
    ("fail", "error_msg", lambda b, x: b.fail_job("live", x), ("", *_TEXTS)),
    ("stop", "job_id", lambda b, x: b.stop_job(x, ""), _UNSTORABLE),
    ("stop", "error_msg", lambda b, x: b.stop_job("live", x), _TEXTS),
    ("stop retry", "job_id", lambda b, x: b.stop_job_with_retry(x, ""), _UNSTORABLE),
    ("stop retry", "error_msg", lambda b, x: b.stop_job_with_retry("live", x), _TEXTS),
    ("unknown", "job_id", lambda b, x: b.mark_job_unknown_stopped(x, ""), _UNSTORABLE),
    ("unknown", "error_msg", lambda b, x: b.mark_job_unknown_stopped("live", x), _TEXTS),
    (
        "update",
        "job_id",
        lambda b, x: b.update_job_status(x, JobState.COMPLETED),
        _UNSTORABLE,
    ),
    ("update", "status", lambda b, x: b.update_job_status("live", x), ("DONE", None, 7)),
    (
        "update",
        "result",
        lambda b, x: b.update_job_status("live", JobState.COMPLETED, x),
        ("text", 7),
    ),
    (
        "update",
        "error_msg",
        lambda b, x: b.update_job_status("live", JobState.STOPPED, None, x),
        _TEXTS,
    ),
    ("cancel", "tags", lambda b, x: b.cancel_jobs(x, ["live"]), _TAGS),
    ("cancel", "job_ids", lambda b, x: b.cancel_jobs(["a"], x), _IDS),
    ("cancel", "job_ids", lambda b, x: b.cancel_jobs(x, x), ([], (), frozenset())),
    ("cancel", "namespace", lambda b, x: b.cancel_jobs([], ["live"], namespace=x), _UNSTORABLE),
    ("cancel", "reason", lambda b, x: b.cancel_jobs([], ["live"], reason=x), (*_TEXTS, "x" * 1025)),
    ("acknowledge", "job_id", lambda b, x: b.acknowledge_cancellation(x, True), _UNSTORABLE),
    ("unresponsive", "assignee_id", lambda b, x: b.mark_worker_unresponsive(x), _UNSTORABLE),
    ("extend", "lease_ttl_s", lambda b, x: b.extend_leases([], lease_ttl_s=x), _TTLS),
    ("extend", "held", lambda b, x: b.extend_leases(x, lease_ttl_s=5), (None, "x", 7)),
    (
        "extend",
        "held[1].job_id",
        lambda b, x: b.extend_leases([Held("live", "t"), Held(x, "t")], lease_ttl_s=5),
        _UNSTORABLE,
    ),
    (
        "extend",
        "held[0].token",
        lambda b, x: b.extend_leases([Held("live", x)], lease_ttl_s=5),
        (None, 7),
    ),
    ("expire", "lease_ttl_s", lambda b, x: b.expire_leases(lease_ttl_s=x), _TTLS),
    ("expire", "limit", lambda b, x: b.expire_leases(lease_ttl_s=5, limit=x), _LIMITS),
    ("get", "job_id", lambda b, x: b.get_job(x), _UNSTORABLE),
    ("get", "namespace", lambda b, x: b.get_job("live", namespace=x), _UNSTORABLE),
    ("stats", "tags", lambda b, x: b.get_job_stats(x), _TAGS),
    ("stats", "namespace", lambda b, x: b.get_job_stats([], namespace=x), _UNSTORABLE),
    ("history", "job_id", lambda b, x: b.get_history(x), _UNSTORABLE),
    ("history", "namespace", lambda b, x: b.get_history("live", namespace=x), _UNSTORABLE),
    ("reset", "namespace", lambda b, x: b.reset_running_jobs(namespace=x), ("", "a\x00", 7)),
    ("cleanup", "ttl", lambda b, x: b.cleanup_expired_jobs(x), _TTLS),
    ("cleanup", "namespace", lambda b, x: b.cleanup_expired_jobs(1, namespace=x), ("", "a\x00")),
    ("delete", "tags", lambda b, x: b.delete_jobs(x, ["live"]), _TAGS),
    ("delete", "job_ids", lambda b, x: b.delete_jobs(["a"], x), _IDS),
    ("delete", "job_ids", lambda b, x: b.delete_jobs(x, x), ([], (), frozenset())),
    ("delete", "namespace", lambda b, x: b.delete_jobs([], ["live"], namespace=x), _UNSTORABLE),
    ("settle", "outcomes", lambda b, x: b.settle(x), (None, "x", 7)),
    ("settle", "outcomes[0]", lambda b, x: b.settle(x), ([None], ["x"])),
]


@proves("backend-api.ErrorConditions.error.5")
@pytest.mark.parametrize(
    ("field", "call", "values"),
    [pytest.param(*row[1:], id=f"{n}-{row[0]}-{row[1]}") for n, row in enumerate(_CALLS)],
)
async def test_a_bad_argument_is_named_and_nothing_is_written(
    backend: Contract, field: str, call: _Call, values: tuple[Any, ...]
) -> None:
    await submitted(backend, id="live", tags=frozenset({"a"}))
    live, _ = await running(backend)
    before = await backend.get_job("live"), await backend.get_job(live.id)
    for value in values:
        with pytest.raises(InvalidArgument) as raised:
            await call(backend, value)
        assert raised.value.field == field, value
    assert (await backend.get_job("live"), await backend.get_job(live.id)) == before
    assert (await backend.get_job_stats([])).total_jobs == 2


@proves("backend-api.ErrorConditions.error.5")
async def test_an_iterator_is_no_filter(backend: Contract) -> None:
    # Used up by its check, it would read as no tags at all, which is every job.
    await submitted(backend, tags=frozenset({"a"}))
    calls: list[Callable[[Any], Awaitable[object]]] = [
        lambda tags: backend.dequeue_jobs("w", tags, 1),
        lambda tags: backend.get_job_stats(tags),
        lambda tags: backend.cancel_jobs(tags, ["x"]),
    ]
    for call in calls:
        with pytest.raises(InvalidArgument) as raised:
            await call(iter(["a"]))
        assert raised.value.field == "tags"
    assert (await backend.get_job_stats([])).pending_jobs == 1


async def test_a_result_over_the_limit_is_refused_by_the_library(store: Store) -> None:
    backend = await store.open(limits=Limits(result_bytes=10))
    job, token = await running(backend)
    for call in (
        backend.complete_job(job.id, b"x" * 11, token=token),
        backend.update_job_status(job.id, JobState.COMPLETED, b"x" * 11, token=token),
    ):
        with pytest.raises(PayloadTooLarge) as raised:
            await call
        assert (raised.value.field, raised.value.size, raised.value.limit) == ("result", 11, 10)
    assert (await backend.get_job(job.id)).state is JobState.RUNNING
    await backend.complete_job(job.id, b"x" * 10, token=token)


async def test_a_message_that_is_too_long_is_cut(backend: Contract) -> None:
    job, token = await running(backend)
    await backend.fail_job(job.id, "ü" * 100_000, token=token)
    assert (await backend.get_job(job.id)).error_message == "ü" * 8192
