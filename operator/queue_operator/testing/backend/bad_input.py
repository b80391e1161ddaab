"""A wrong argument is refused with the name of its field, and nothing is written."""

from collections.abc import Awaitable, Callable
from typing import Any, Final

import pytest

from queue_operator.backends.protocol import FailureSearch, JobSearch
from queue_operator.domain.errors import InvalidArgument, PayloadTooLarge
from queue_operator.domain.job import Demand, TypeDefaults
from queue_operator.domain.lease import Held
from queue_operator.domain.outcome import ErrorInfo, Outcome
from queue_operator.domain.states import Event, JobState
from queue_operator.domain.validation import Limits
from queue_operator.testing.clauses import proves
from queue_operator.testing.driving import a_job, running, submitted
from queue_operator.testing.store import Contract, Store
from queue_operator.testing.wrong import (
    DELAYS,
    IDS,
    LIMITS,
    NAN,
    TAGS,
    TEN_KB,
    TEXTS,
    TTLS,
    UNSTORABLE,
)

_Call = Callable[[Contract, Any], Awaitable[object]]


_NO_KIND: Final = (None, 7, "x", [7])
# Any text would count as True, "no" too.
_NO_FLAG: Final = (None, 0, 1, "no", "")


# A demand is looked up by what it asks for, so it must not change.
_NO_FILTER: Final[tuple[Any, ...]] = (
    "t",
    [""],
    [7],
    ["t"],
    [],
    {"t"},
    {"t": 1}.keys(),
    frozenset({""}),
)


def _demand(**change: Any) -> list[Demand]:
    return [Demand(**{"assignee_id": "w", "limit": 1, **change})]


_CALLS: Final[list[tuple[str, str, _Call, tuple[Any, ...]]]] = [
    ("dequeue", "assignee_id", lambda b, x: b.dequeue_jobs(x, [], 1), UNSTORABLE),
    ("dequeue", "tags", lambda b, x: b.dequeue_jobs("w", x, 1), TAGS),
    ("dequeue", "limit", lambda b, x: b.dequeue_jobs("w", [], x), LIMITS),
    ("dequeue", "namespace", lambda b, x: b.dequeue_jobs("w", [], 1, namespace=x), UNSTORABLE),
    ("dequeue", "lease_ttl_s", lambda b, x: b.dequeue_jobs("w", [], 1, lease_ttl_s=x), TTLS),
    ("claim", "lease_ttl_s", lambda b, x: b.claim(_demand(), lease_ttl_s=x), TTLS),
    ("claim", "demands", lambda b, x: b.claim(x, lease_ttl_s=5), (None, "w", [None], ["w"])),
    (
        "claim",
        "assignee_id",
        lambda b, x: b.claim(_demand(assignee_id=x), lease_ttl_s=5),
        UNSTORABLE,
    ),
    ("claim", "limit", lambda b, x: b.claim(_demand(limit=x), lease_ttl_s=5), LIMITS),
    ("claim", "namespace", lambda b, x: b.claim(_demand(namespace=x), lease_ttl_s=5), UNSTORABLE),
    ("claim", "tags", lambda b, x: b.claim(_demand(tags=x), lease_ttl_s=5), TAGS),
    ("claim", "types", lambda b, x: b.claim(_demand(types=x), lease_ttl_s=5), _NO_FILTER),
    ("claim", "tags", lambda b, x: b.claim(_demand(tags=x), lease_ttl_s=5), _NO_FILTER),
    (
        "claim",
        "defaults.timeout_s",
        lambda b, x: b.claim(
            _demand(), lease_ttl_s=5, defaults={"t": TypeDefaults(max_attempts=None, timeout_s=x)}
        ),
        TTLS,
    ),
    (
        "claim",
        "defaults.max_attempts",
        lambda b, x: b.claim(
            _demand(), lease_ttl_s=5, defaults={"t": TypeDefaults(max_attempts=x)}
        ),
        (-1, 101, 1.5, True, "3", NAN),
    ),
    ("claim", "host", lambda b, x: b.claim(_demand(host=x), lease_ttl_s=5), TEXTS),
    ("complete", "job_id", lambda b, x: b.complete_job(x, b""), UNSTORABLE),
    ("complete", "result", lambda b, x: b.complete_job("live", x), ("text", None, 7)),
    ("complete", "namespace", lambda b, x: b.complete_job("live", b"", namespace=x), UNSTORABLE),
    ("complete", "token", lambda b, x: b.complete_job("live", b"", token=x), (7, b"x", ["x"])),
    ("fail", "job_id", lambda b, x: b.fail_job(x, "boom"), UNSTORABLE),
    ("fail", "error_msg", lambda b, x: b.fail_job("live", x), ("", *TEXTS)),
    ("stop", "job_id", lambda b, x: b.stop_job(x, ""), UNSTORABLE),
    ("stop", "error_msg", lambda b, x: b.stop_job("live", x), TEXTS),
    ("stop retry", "job_id", lambda b, x: b.stop_job_with_retry(x, ""), UNSTORABLE),
    ("stop retry", "error_msg", lambda b, x: b.stop_job_with_retry("live", x), TEXTS),
    ("unknown", "job_id", lambda b, x: b.mark_job_unknown_stopped(x, ""), UNSTORABLE),
    ("unknown", "error_msg", lambda b, x: b.mark_job_unknown_stopped("live", x), TEXTS),
    (
        "update",
        "job_id",
        lambda b, x: b.update_job_status(x, JobState.COMPLETED),
        UNSTORABLE,
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
        TEXTS,
    ),
    (
        "update",
        "token",
        lambda b, x: b.update_job_status("live", JobState.COMPLETED, token=x),
        (7, b"x", ["x"]),
    ),
    ("cancel", "tags", lambda b, x: b.cancel_jobs(x, ["live"]), TAGS),
    ("cancel", "job_ids", lambda b, x: b.cancel_jobs(["a"], x), IDS),
    ("cancel", "job_ids", lambda b, x: b.cancel_jobs(x, x), ([], (), frozenset())),
    ("cancel", "namespace", lambda b, x: b.cancel_jobs([], ["live"], namespace=x), UNSTORABLE),
    ("cancel", "reason", lambda b, x: b.cancel_jobs([], ["live"], reason=x), (*TEXTS, "x" * 1025)),
    ("acknowledge", "job_id", lambda b, x: b.acknowledge_cancellation(x, True), UNSTORABLE),
    ("unresponsive", "assignee_id", lambda b, x: b.mark_worker_unresponsive(x), UNSTORABLE),
    ("extend", "lease_ttl_s", lambda b, x: b.extend_leases([], lease_ttl_s=x), TTLS),
    ("extend", "held", lambda b, x: b.extend_leases(x, lease_ttl_s=5), (None, "x", 7)),
    (
        "extend",
        "held[1].job_id",
        lambda b, x: b.extend_leases([Held("live", "t"), Held(x, "t")], lease_ttl_s=5),
        UNSTORABLE,
    ),
    (
        "extend",
        "held[0].token",
        lambda b, x: b.extend_leases([Held("live", x)], lease_ttl_s=5),
        (None, 7),
    ),
    ("leased", "assignee_ids", lambda b, x: b.leased(x), IDS),
    ("expire", "lease_ttl_s", lambda b, x: b.expire_leases(lease_ttl_s=x), TTLS),
    ("expire", "limit", lambda b, x: b.expire_leases(lease_ttl_s=5, limit=x), LIMITS),
    ("get", "job_id", lambda b, x: b.get_job(x), UNSTORABLE),
    ("get", "namespace", lambda b, x: b.get_job("live", namespace=x), UNSTORABLE),
    ("stats", "tags", lambda b, x: b.get_job_stats(x), TAGS),
    ("stats", "namespace", lambda b, x: b.get_job_stats([], namespace=x), UNSTORABLE),
    ("history", "job_id", lambda b, x: b.get_history(x), UNSTORABLE),
    ("history", "namespace", lambda b, x: b.get_history("live", namespace=x), UNSTORABLE),
    ("reset", "namespace", lambda b, x: b.reset_running_jobs(namespace=x), ("", "a\x00", 7)),
    ("cleanup", "ttl_s", lambda b, x: b.cleanup_expired_jobs(x), TTLS),
    ("cleanup", "namespace", lambda b, x: b.cleanup_expired_jobs(1, namespace=x), ("", "a\x00")),
    ("delete", "tags", lambda b, x: b.delete_jobs(x, ["live"]), TAGS),
    ("delete", "job_ids", lambda b, x: b.delete_jobs(["a"], x), IDS),
    ("delete", "job_ids", lambda b, x: b.delete_jobs(x, x), ([], (), frozenset())),
    ("delete", "namespace", lambda b, x: b.delete_jobs([], ["live"], namespace=x), UNSTORABLE),
    ("search", "search", lambda b, x: b.search_jobs(x), _NO_KIND),
    ("search", "count", lambda b, x: b.search_jobs(JobSearch(count=x)), _NO_FLAG),
    ("failures", "search", lambda b, x: b.search_failures(x), _NO_KIND),
    ("failures", "count", lambda b, x: b.search_failures(FailureSearch(count=x)), _NO_FLAG),
    ("cancel", "force", lambda b, x: b.cancel_jobs([], ["live"], force=x), _NO_FLAG),
    ("submit", "atomic", lambda b, x: b.submit([a_job()], atomic=x), _NO_FLAG),
    (
        "acknowledge",
        "was_executing",
        lambda b, x: b.acknowledge_cancellation("live", x),
        _NO_FLAG,
    ),
    (
        "claim",
        "defaults",
        lambda b, x: b.claim(_demand(), lease_ttl_s=5, defaults=x),
        (7, "t", {7: TypeDefaults()}),
    ),
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


_BAD_OUTCOMES: Final[dict[str, tuple[Any, ...]]] = {
    "job_id": UNSTORABLE,
    "namespace": UNSTORABLE,
    "token": (7, b"x"),
    "event": ("STOP", None),
    "result": ("text", 7),
    "result_content_type": ("a\x00", 7, TEN_KB),
    "retry_after_s": DELAYS,
    "reason": ("a\x00", "\ud800", 7, None, TEN_KB),
    "priority": ("HIGH", 7),
    "worker_plane": _NO_FLAG,
    "reset_attempts": _NO_FLAG,
    "assignee_id": (7, b"w", ["w"]),
    "error": ("boom", {}),
    "error.message": (ErrorInfo(None), ErrorInfo(7)),  # type: ignore[arg-type]
    "error.category": (ErrorInfo("x", "TIMEOUT"),),  # type: ignore[arg-type]
    "error.context": (ErrorInfo("x", context={"a": 7}), ErrorInfo("x", context="a")),  # type: ignore[dict-item, arg-type]
}


@proves("backend-api.ErrorConditions.error.5", "backend-api.ErrorConditions.error.6")
@pytest.mark.parametrize("field", _BAD_OUTCOMES)
async def test_a_bad_outcome_is_answered_with_its_field_and_the_others_apply(
    backend: Contract, field: str
) -> None:
    job, token = await running(backend)
    before = await backend.get_job(job.id)
    for value in _BAD_OUTCOMES[field]:
        good, good_token = await running(backend)
        bad = Outcome(job.id, Event.FAIL, token=token)._replace(**{field.partition(".")[0]: value})
        answers = await backend.settle([bad, Outcome(good.id, Event.STOP, token=good_token)])
        assert isinstance(answers[0].error, InvalidArgument), value
        assert answers[0].error.field == field, value
        assert answers[1].state is JobState.STOPPED
    assert await backend.get_job(job.id) == before


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
