"""search_failures: what failed, why, and how that spreads."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

import pytest

from queue_operator.backends.protocol import FailurePage, FailureSearch
from queue_operator.domain.errors import InvalidArgument
from queue_operator.domain.job import Job
from queue_operator.domain.ordering import Priority
from queue_operator.domain.outcome import ErrorCategory, ErrorInfo, Outcome
from queue_operator.domain.retry import Backoff, BackoffStrategy
from queue_operator.domain.states import Event, JobState
from queue_operator.domain.views import Phase
from queue_operator.testing.driving import apply, claim, job_in, settle, submitted
from queue_operator.testing.store import Contract, Store

_FAILURES: Final = frozenset({JobState.DEAD_LETTER, JobState.FAILED_RETRY})
_FAILED: Final = frozenset({Phase.FAILED})


async def _failed(backend: Contract, error: ErrorInfo, **fields: object) -> Job:
    """A job whose newest attempt failed with `error`: DEAD_LETTER if that is PERMANENT."""
    # Out of the way of later claims of its type.
    backoff = Backoff(BackoffStrategy.CONSTANT, 500.0, 500.0)
    job = await submitted(backend, backoff=backoff, **fields)
    token = (await claim(backend, job)).token
    outcome = Outcome(job.id, Event.FAIL, token=token, error=error)
    assert (await settle(backend, outcome)).error is None
    return job


async def _search(backend: Contract, **filters: Any) -> FailurePage:
    return await backend.search_failures(FailureSearch(**filters))


def _ids(page: FailurePage) -> list[str]:
    return [job.id for job in page.jobs]


async def test_failures_are_the_jobs_whose_newest_attempt_failed(backend: Contract) -> None:
    jobs = {state: (await job_in(backend, state))[0] for state in JobState}
    # Given back, it is in the same state, and did not fail.
    released, token = await job_in(backend, JobState.RUNNING)
    await apply(backend, released, Event.RELEASE, token)
    page = await _search(backend)
    assert set(_ids(page)) == {jobs[state].id for state in _FAILURES}
    assert page.total_count == 2
    for state in _FAILURES:
        assert _ids(await _search(backend, states=frozenset({state}))) == [jobs[state].id]


async def test_failures_give_whole_records(backend: Contract) -> None:
    error = ErrorInfo("boom", ErrorCategory.TIMEOUT, "E1", "trace", {"host": "x"})
    job = await _failed(backend, error)
    [found] = (await _search(backend)).jobs
    assert found == await backend.get_job(job.id)
    assert found.error == error


async def test_a_job_that_is_running_or_done_again_is_no_failure(
    backend: Contract, store: Store
) -> None:
    jobs = [await _failed(backend, ErrorInfo("boom")) for _ in range(2)]
    assert (await _search(backend)).total_count == len(jobs)
    await store.age(501.0)
    [_, done] = await backend.dequeue_jobs("w", [], 2)
    await backend.complete_job(done.id, b"")
    page = await _search(backend)
    assert (page.jobs, page.total_count, page.by_category) == ((), 0, {})


async def _mixed(backend: Contract) -> dict[str, Job]:
    kinds = {
        "mail timeout": ("mail", ErrorInfo("x", ErrorCategory.TIMEOUT, "SLOW")),
        "mail gone": ("mail", ErrorInfo("x", ErrorCategory.PERMANENT, "GONE")),
        "report": ("report", ErrorInfo("x", ErrorCategory.TEMPORARY, "SLOW")),
        "system": ("report", ErrorInfo("x", ErrorCategory.SYSTEM)),
    }
    return {name: await _failed(backend, error, type=t) for name, (t, error) in kinds.items()}


async def test_failures_by_category_code_type_and_phase(backend: Contract) -> None:
    jobs = await _mixed(backend)
    cases: list[tuple[dict[str, Any], Sequence[str]]] = [
        ({"categories": frozenset({ErrorCategory.TIMEOUT})}, ["mail timeout"]),
        (
            {"categories": frozenset({ErrorCategory.TIMEOUT, ErrorCategory.SYSTEM})},
            ["mail timeout", "system"],
        ),
        ({"error_code": "SLOW"}, ["mail timeout", "report"]),
        ({"types": frozenset({"mail"})}, ["mail timeout", "mail gone"]),
        ({"phases": frozenset({Phase.FAILED})}, ["mail gone"]),
        ({"phases": frozenset({Phase.DEAD_LETTER})}, []),
        ({"phases": frozenset({Phase.RETRYING})}, ["mail timeout", "report", "system"]),
        (
            {"phases": frozenset({Phase.FAILED, Phase.RETRYING}), "types": frozenset({"mail"})},
            ["mail timeout", "mail gone"],
        ),
        ({"phases": frozenset({Phase.FAILED}), "states": frozenset({JobState.FAILED_RETRY})}, []),
        ({"error_code": "SLOW", "types": frozenset({"mail"})}, ["mail timeout"]),
        ({"namespace": "elsewhere"}, []),
    ]
    for filters, names in cases:
        page = await _search(backend, **filters)
        assert set(_ids(page)) == {jobs[name].id for name in names}, filters
        assert page.total_count == len(names)


async def test_failures_tell_used_up_attempts_from_permanent_ones(backend: Contract) -> None:
    jobs = await _mixed(backend)
    used_up = await _failed(backend, ErrorInfo("x", ErrorCategory.TIMEOUT, "SLOW"), max_attempts=1)
    page = await _search(backend, phases=frozenset({Phase.DEAD_LETTER}))
    assert (_ids(page), page.total_count) == ([used_up.id], 1)
    assert (page.by_category, page.by_code) == ({ErrorCategory.TIMEOUT: 1}, {"SLOW": 1})
    dead = await _search(backend, phases=frozenset({Phase.DEAD_LETTER, Phase.FAILED}))
    assert set(_ids(dead)) == {used_up.id, jobs["mail gone"].id}
    assert dead.total_count == 2


async def test_failures_tell_how_all_that_match_spread(backend: Contract) -> None:
    await _mixed(backend)
    await _failed(backend, ErrorInfo("x", ErrorCategory.TIMEOUT, "SLOW"), type="mail")
    page = await _search(backend, limit=1)
    assert (len(page.jobs), page.total_count) == (1, 5)
    assert page.by_category == {
        ErrorCategory.TIMEOUT: 2,
        ErrorCategory.PERMANENT: 1,
        ErrorCategory.TEMPORARY: 1,
        ErrorCategory.SYSTEM: 1,
    }
    assert page.by_code == {"SLOW": 3, "GONE": 1, "": 1}
    assert page.by_type == {"mail": 3, "report": 2}
    mail = await _search(backend, types=frozenset({"mail"}))
    assert mail.by_code == {"SLOW": 2, "GONE": 1}
    assert mail.by_type == {"mail": 3}


async def test_failures_by_the_time_of_the_failure_without_the_bounds(backend: Contract) -> None:
    # Three that may run again and three that may not: both have a time of their failure.
    categories = [ErrorCategory.TEMPORARY, ErrorCategory.PERMANENT] * 3
    jobs = [await _failed(backend, ErrorInfo("x", category)) for category in categories]
    times = [(await backend.get_job(job.id)).failed_at for job in jobs]
    ids = [job.id for job in jobs]
    assert set(_ids(await _search(backend, failed_after=times[1]))) == set(ids[2:])
    assert set(_ids(await _search(backend, failed_before=times[4]))) == set(ids[:4])
    between = await _search(backend, failed_after=times[1], failed_before=times[4])
    assert set(_ids(between)) == {ids[2], ids[3]}


async def test_a_failure_keeps_its_time_whatever_becomes_of_the_job(backend: Contract) -> None:
    for_good = await _failed(backend, ErrorInfo("x", ErrorCategory.PERMANENT))
    waiting = await _failed(backend, ErrorInfo("x"))
    at_once = Backoff(BackoffStrategy.CONSTANT, 0.0, 0.0)
    given_back = await submitted(backend, backoff=at_once)
    await backend.fail_job(given_back.id, "x", token=(await claim(backend, given_back)).token)
    last = await _failed(backend, ErrorInfo("x", ErrorCategory.PERMANENT))
    jobs = [for_good, waiting, given_back, last]
    before = [await backend.get_job(job.id) for job in jobs]
    assert [job.failed_at for job in before] == [job.updated_at for job in before]

    await apply(backend, given_back, Event.RELEASE, (await claim(backend, given_back)).token)
    for job in (waiting, for_good):
        outcome = Outcome(job.id, Event.RETRY_NOW, priority=Priority.LOW, retry_after_s=500.0)
        assert (await settle(backend, outcome)).error is None
    after = [await backend.get_job(job.id) for job in jobs]
    assert [job.failed_at for job in after] == [job.failed_at for job in before]
    assert all(str(job.updated_at) > str(job.failed_at) for job in after[:3])
    ids = [job.id for job in jobs]
    assert _ids(await _search(backend)) == ids[::-1]
    assert _ids(await _search(backend, failed_after=before[1].failed_at)) == ids[:1:-1]
    early = await _search(backend, failed_before=before[1].failed_at)
    assert (_ids(early), early.total_count) == (ids[:1], 1)
    first = await _search(backend, limit=2)
    second = await _search(backend, limit=2, cursor=first.next_cursor)
    assert _ids(first) + _ids(second) == ids[::-1]


async def test_failures_that_are_not_to_be_counted(backend: Contract) -> None:
    await _mixed(backend)
    counted, plain = [await _search(backend, limit=3, count=count) for count in (True, False)]
    assert (plain.jobs, plain.next_cursor) == (counted.jobs, counted.next_cursor)
    spread = plain.by_category, plain.by_code, plain.by_type
    assert (plain.total_count, *spread) == (None, {}, {}, {})
    rest = await _search(backend, limit=3, count=True, cursor=plain.next_cursor)
    assert (len(rest.jobs), rest.total_count) == (1, 4)
    assert (await _search(backend, namespace="elsewhere", count=False)).jobs == ()


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 100])
async def test_failure_pages_hold_every_job_once_newest_first(
    backend: Contract, limit: int
) -> None:
    categories = [ErrorCategory.TEMPORARY, ErrorCategory.PERMANENT] * 3
    jobs = [await _failed(backend, ErrorInfo("x", category)) for category in categories]
    search, found = FailureSearch(limit=limit), []
    for _ in jobs:
        page = await backend.search_failures(search)
        assert (len(page.jobs) <= limit, page.total_count) == (True, 6)
        found += _ids(page)
        if not page.next_cursor:
            break
        search = replace(search, cursor=page.next_cursor)
    assert found == [job.id for job in reversed(jobs)]


async def test_failures_refuse_a_cursor_of_another_search(backend: Contract) -> None:
    for _ in range(3):
        await _failed(backend, ErrorInfo("x"))
    page = await _search(backend, limit=1)
    for filters in ({"error_code": "E"}, {"phases": _FAILED}, {"states": _FAILURES}):
        with pytest.raises(InvalidArgument) as raised:
            await _search(backend, limit=1, cursor=page.next_cursor, **filters)
        assert raised.value.field == "cursor"
    for cursor in ("x", "AAAA", "e30"):
        with pytest.raises(InvalidArgument) as raised:
            await _search(backend, cursor=cursor)
        assert raised.value.field == "cursor"


_WRONG: Final[dict[str, tuple[Any, ...]]] = {
    "limit": (0, -1, 1001, 1.0, True, None),
    "namespace": ("", "a\x00", None),
    "cursor": (None, 7, "\ud800"),
    "states": (
        JobState.RUNNING.value,
        None,
        frozenset({"x"}),
        *(frozenset({state}) for state in sorted(set(JobState) - _FAILURES)),
    ),
    "phases": (
        Phase.FAILED.value,
        None,
        frozenset({"x"}),
        *(frozenset({one}) for one in (Phase.RUNNING, Phase.PENDING, Phase.CANCELLED)),
    ),
    "categories": ("TIMEOUT", None, frozenset({"x"})),
    "types": ("t", None, frozenset({""})),
    "error_code": (None, 7, "a\x00"),
    "failed_after": (datetime(2024, 1, 1), "2024"),
    "failed_before": (datetime(2024, 1, 1), 7),
}


@pytest.mark.parametrize("field", _WRONG)
async def test_failures_name_a_wrong_field(backend: Contract, field: str) -> None:
    for value in _WRONG[field]:
        with pytest.raises(InvalidArgument) as raised:
            await _search(backend, **{field: value})
        assert raised.value.field == field, value


async def test_a_lost_last_attempt_is_a_failure_of_the_system(
    backend: Contract, store: Store
) -> None:
    job = await submitted(backend, max_attempts=1)
    await claim(backend, job, ttl_s=5.0)
    for _ in range(2):
        await store.age(6.0)
        await backend.expire_leases(lease_ttl_s=5.0)
    page = await _search(backend, categories=frozenset({ErrorCategory.SYSTEM}))
    assert _ids(page) == [job.id]
    assert page.by_code == {"WORKER_LOST": 1}
