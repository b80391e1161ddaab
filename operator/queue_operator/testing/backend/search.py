"""search_jobs: what it finds, in what order, page by page."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, Final

import pytest

from queue_operator.backends.protocol import JobSearch, SearchOrder
from queue_operator.domain.errors import InvalidArgument
from queue_operator.domain.job import Job
from queue_operator.domain.ordering import Priority
from queue_operator.domain.outcome import ErrorCategory, ErrorInfo, Outcome
from queue_operator.domain.states import Event, JobState
from queue_operator.domain.views import Phase, phase
from queue_operator.testing.driving import a_job, claim, job_in, settle, submitted
from queue_operator.testing.store import Contract, Store

_EPOCH: Final = datetime(2024, 1, 1, tzinfo=UTC)
_NOW: Final = datetime(2100, 1, 1, tzinfo=UTC)
_ASCENDING: Final = JobSearch(order=SearchOrder.CREATED_ASC)


def _at(minutes: float, **fields: object) -> Job:
    return a_job(created_at=_EPOCH + timedelta(minutes=minutes), **fields)


async def _found(backend: Contract, **filters: Any) -> set[str]:
    page = await backend.search_jobs(JobSearch(**filters))
    assert page.next_cursor == ""
    assert (page.total_count, page.total_is_exact) == (len(page.jobs), True)
    return {job.id for job in page.jobs}


# More than any search here has.
_MAX_PAGES: Final = 100


async def _pages(backend: Contract, search: JobSearch) -> list[list[str]]:
    pages = []
    for _ in range(_MAX_PAGES):
        page = await backend.search_jobs(search)
        assert len(page.jobs) <= search.limit
        pages.append([job.id for job in page.jobs])
        if not page.next_cursor:
            return pages
        assert len(page.jobs) == search.limit
        search = replace(search, cursor=page.next_cursor)
    pytest.fail(f"no end after {_MAX_PAGES} pages")


async def test_search_of_an_empty_store(backend: Contract) -> None:
    page = await backend.search_jobs(JobSearch())
    assert (page.jobs, page.total_count, page.total_is_exact, page.next_cursor) == ((), 0, True, "")
    assert await _found(backend, namespace="nowhere", tags=frozenset({"nobody's"})) == set()


async def test_search_gives_records_without_what_may_be_large(backend: Contract) -> None:
    job, _ = await job_in(backend, JobState.FAILED_RETRY)
    parent = await submitted(backend, tags=frozenset({"a", "b"}), payload=b"\x00")
    child = await submitted(backend, depends_on=(parent.id,), idempotency_key="k")
    done, _ = await job_in(backend, JobState.COMPLETED)
    stored = [await backend.get_job(one.id) for one in (job, parent, child, done)]
    bare = [replace(one, payload=b"", result=None) for one in stored]
    page = await backend.search_jobs(_ASCENDING)
    assert list(page.jobs) == bare
    ids = [one.id for one in bare]
    assert await backend.look_up([*ids, "missing"]) == dict(zip(ids, bare, strict=True))
    assert await backend.look_up(ids, namespace="elsewhere") == {}
    assert await backend.look_up([]) == {}
    named = await backend.named_jobs([(space, id) for id in ids for space in (job.namespace, "x")])
    assert named == {(one.namespace, one.id): one for one in bare}
    assert await backend.named_jobs([]) == {}


async def test_search_by_state(backend: Contract) -> None:
    jobs = {state: (await job_in(backend, state))[0] for state in JobState}
    for state, job in jobs.items():
        assert await _found(backend, states=frozenset({state})) == {job.id}
    some = frozenset({JobState.RUNNING, JobState.COMPLETED, JobState.INITIAL_PENDING})
    assert await _found(backend, states=some) == {jobs[state].id for state in some}
    assert len(await _found(backend)) == len(jobs)


async def test_search_by_type_priority_and_namespace(backend: Contract) -> None:
    mail = await submitted(backend, type="mail", priority=Priority.HIGH)
    report = await submitted(backend, type="report", priority=Priority.HIGH)
    slow = await submitted(backend, type="mail", priority=Priority.LOW)
    other = await submitted(backend, type="mail", namespace="other")
    assert await _found(backend, types=frozenset({"mail"})) == {mail.id, slow.id}
    assert await _found(backend, types=frozenset({"mail", "report", "sms"})) == {
        mail.id,
        report.id,
        slow.id,
    }
    assert await _found(backend, priorities=frozenset({Priority.HIGH})) == {mail.id, report.id}
    both = frozenset({Priority.HIGH, Priority.LOW})
    assert await _found(backend, types=frozenset({"mail"}), priorities=both) == {mail.id, slow.id}
    assert await _found(backend, types=frozenset({"mail"}), namespace="other") == {other.id}


async def test_search_by_tags_takes_jobs_with_all_of_them(backend: Contract) -> None:
    both = await submitted(backend, tags=frozenset({"a", "b"}))
    half = await submitted(backend, tags=frozenset({"a"}))
    await submitted(backend, tags=frozenset({"A"}))
    assert await _found(backend, tags=frozenset({"a"})) == {both.id, half.id}
    assert await _found(backend, tags=frozenset({"b", "a"})) == {both.id}
    assert await _found(backend, tags=frozenset({"a", "c"})) == set()


async def test_search_by_the_time_of_creation_without_the_bounds(backend: Contract) -> None:
    jobs = [_at(minutes) for minutes in range(5)]
    await backend.enqueue_jobs(jobs)
    ids = [job.id for job in jobs]
    first, last = jobs[1].created_at, jobs[3].created_at
    assert await _found(backend, created_after=first) == set(ids[2:])
    assert await _found(backend, created_before=last) == set(ids[:3])
    assert await _found(backend, created_after=first, created_before=last) == {ids[2]}
    assert first is not None
    elsewhere = first.astimezone(timezone(timedelta(hours=5)))
    assert await _found(backend, created_after=elsewhere) == set(ids[2:])


async def test_search_by_the_time_of_the_last_change(backend: Contract) -> None:
    idle, busy = await submitted(backend), await submitted(backend)
    token = (await claim(backend, busy)).token
    at = (await backend.get_job(busy.id)).updated_at
    await backend.complete_job(busy.id, b"", token=token)
    assert await _found(backend, updated_after=at) == {busy.id}
    ended = (await backend.get_job(busy.id)).updated_at
    assert await _found(backend, updated_after=ended) == set()
    assert idle.id in await _found(backend)


async def test_search_tells_delayed_jobs_from_those_that_are_due(
    backend: Contract, store: Store
) -> None:
    due = await submitted(backend)
    delayed = await submitted(backend, delay_s=500.0)
    assert await _found(backend, phases=frozenset({Phase.DELAYED})) == {delayed.id}
    assert await _found(backend, phases=frozenset({Phase.SCHEDULED})) == {due.id}
    assert await _found(backend) == {due.id, delayed.id}
    await store.age(501.0)
    assert await _found(backend, phases=frozenset({Phase.DELAYED})) == set()
    assert await _found(backend, phases=frozenset({Phase.SCHEDULED})) == {due.id, delayed.id}


async def test_search_tells_waiting_jobs_from_those_that_may_run(backend: Contract) -> None:
    parent = await submitted(backend)
    child = await submitted(backend, depends_on=(parent.id,))
    assert await _found(backend, phases=frozenset({Phase.PENDING})) == {child.id}
    assert await _found(backend, phases=frozenset({Phase.SCHEDULED})) == {parent.id}
    await backend.complete_job(parent.id, b"", token=(await claim(backend, parent)).token)
    assert await _found(backend, phases=frozenset({Phase.PENDING})) == set()


async def test_search_tells_permanent_failures_from_used_up_attempts(backend: Contract) -> None:
    permanent, _ = await job_in(backend, JobState.DEAD_LETTER)
    used_up = await submitted(backend, max_attempts=1)
    await backend.fail_job(used_up.id, "boom", token=(await claim(backend, used_up)).token)
    dead = frozenset({JobState.DEAD_LETTER})
    failed, dead_letter = frozenset({Phase.FAILED}), frozenset({Phase.DEAD_LETTER})
    assert await _found(backend, phases=failed) == {permanent.id}
    assert await _found(backend, states=dead, phases=dead_letter) == {used_up.id}
    assert await _found(backend, states=dead) == {permanent.id, used_up.id}
    assert await _found(backend, phases=failed | dead_letter) == {permanent.id, used_up.id}


async def _in_every_phase(backend: Contract) -> dict[Phase, set[str]]:
    """At least one job in each of the nine."""
    by_state = {state: (await job_in(backend, state))[0].id for state in JobState}
    by_phase: dict[Phase, set[str]] = {phase: set() for phase in Phase}
    for job_id in by_state.values():
        by_phase[phase(await backend.get_job(job_id), _NOW)].add(job_id)
    used_up = await submitted(backend, max_attempts=1)
    await backend.fail_job(used_up.id, "boom", token=(await claim(backend, used_up)).token)
    by_phase[Phase.DEAD_LETTER].add(used_up.id)
    by_phase[Phase.DELAYED].add((await submitted(backend, delay_s=500.0)).id)
    parent = by_state[JobState.INITIAL_PENDING]
    for delay_s in (None, 500.0):
        child = await submitted(backend, depends_on=(parent,), delay_s=delay_s)
        by_phase[Phase.PENDING].add(child.id)
    assert all(by_phase.values())
    return by_phase


_MIXED: Final = (
    *({phase} for phase in Phase),
    {Phase.PENDING, Phase.DELAYED, Phase.SCHEDULED},
    {Phase.FAILED, Phase.DEAD_LETTER},
    {Phase.DELAYED, Phase.RUNNING, Phase.FAILED},
    {Phase.PENDING, Phase.SCHEDULED, Phase.COMPLETED, Phase.DEAD_LETTER},
    {Phase.RETRYING, Phase.CANCELLED, Phase.DELAYED},
    set(Phase) - {Phase.DELAYED},
    set(Phase),
)


async def test_search_by_any_mix_of_phases(backend: Contract) -> None:
    by_phase = await _in_every_phase(backend)
    for mix in _MIXED:
        wanted = set().union(*(by_phase[one] for one in mix))
        for order in SearchOrder:
            assert await _found(backend, phases=frozenset(mix), order=order) == wanted, mix


async def test_search_by_phases_pages_and_counts(backend: Contract) -> None:
    by_phase = await _in_every_phase(backend)
    for mix in _MIXED:
        wanted = set().union(*(by_phase[one] for one in mix))
        search = JobSearch(phases=frozenset(mix), limit=2)
        pages = await _pages(backend, search)
        assert sorted(job_id for page in pages for job_id in page) == sorted(wanted)
        first = await backend.search_jobs(search)
        assert (first.total_count, first.total_is_exact) == (len(wanted), True)


async def test_search_by_phases_and_states_takes_what_is_both(backend: Contract) -> None:
    by_phase = await _in_every_phase(backend)
    pending = frozenset({JobState.INITIAL_PENDING})
    both = {"states": pending, "phases": frozenset({Phase.DELAYED, Phase.RUNNING})}
    assert await _found(backend, **both) == by_phase[Phase.DELAYED]
    assert await _found(backend, **{**both, "phases": frozenset({Phase.COMPLETED})}) == set()


async def test_search_combines_all_filters(backend: Contract) -> None:
    wanted = _at(5, type="t", tags=frozenset({"a"}), priority=Priority.HIGH)
    near = [
        _at(5, type="u", tags=frozenset({"a"}), priority=Priority.HIGH),
        _at(5, type="t", tags=frozenset({"b"}), priority=Priority.HIGH),
        _at(5, type="t", tags=frozenset({"a"}), priority=Priority.LOW),
        _at(1, type="t", tags=frozenset({"a"}), priority=Priority.HIGH),
        _at(9, type="t", tags=frozenset({"a"}), priority=Priority.HIGH),
        _at(5, type="t", tags=frozenset({"a"}), priority=Priority.HIGH, delay_s=1e6),
    ]
    await backend.enqueue_jobs([*near, wanted])
    found = await _found(
        backend,
        types=frozenset({"t"}),
        tags=frozenset({"a"}),
        priorities=frozenset({Priority.HIGH}),
        states=frozenset({JobState.INITIAL_PENDING}),
        created_after=_EPOCH + timedelta(minutes=2),
        created_before=_EPOCH + timedelta(minutes=8),
        phases=frozenset({Phase.SCHEDULED, Phase.RUNNING}),
    )
    assert found == {wanted.id}


_LIMITS: Final = [1, 2, 7, 30, 31, 1000]


@pytest.mark.parametrize("limit", _LIMITS)
@pytest.mark.parametrize("order", SearchOrder)
async def test_search_pages_hold_every_job_once_in_order(
    backend: Contract, order: SearchOrder, limit: int
) -> None:
    # Ten times of creation, three jobs each, submitted in no order of time.
    jobs = [_at((n * 7) % 10) for n in range(30)]
    await backend.enqueue_jobs(jobs)
    for job in jobs[::3]:
        await backend.fail_job(job.id, "boom", token=(await claim(backend, job)).token)
    pages = await _pages(backend, JobSearch(order=order, limit=limit))
    ids = [job_id for page in pages for job_id in page]
    stored = [await backend.get_job(job.id) for job in jobs]
    assert ids == [job.id for job in _ordered(stored, order)]


def _ordered(jobs: list[Job], order: SearchOrder) -> list[Job]:
    """Sorted; `jobs` are in order of submission, and sorting keeps the order of ties."""
    if order is SearchOrder.UPDATED_DESC:
        return sorted(jobs, key=lambda job: job.updated_at or _EPOCH)[::-1]
    oldest_first = sorted(jobs, key=lambda job: job.created_at or _EPOCH)
    return oldest_first if order is SearchOrder.CREATED_ASC else oldest_first[::-1]


async def test_search_answers_the_count_of_all_pages(backend: Contract) -> None:
    await backend.enqueue_jobs([_at(n) for n in range(7)])
    first = await backend.search_jobs(JobSearch(limit=3))
    assert (first.total_count, first.total_is_exact, len(first.jobs)) == (7, True, 3)
    second = await backend.search_jobs(JobSearch(limit=3, cursor=first.next_cursor))
    assert (second.total_count, len(second.jobs)) == (7, 3)


@pytest.mark.parametrize("order", SearchOrder)
async def test_search_that_is_not_to_count_gives_the_same_pages(
    backend: Contract, order: SearchOrder
) -> None:
    await backend.enqueue_jobs([_at(n) for n in range(7)])
    for filters in ({}, {"updated_after": _EPOCH}, {"phases": frozenset({Phase.SCHEDULED})}):
        counted = JobSearch(order=order, limit=3, **filters)
        plain = replace(counted, count=False)
        assert await _pages(backend, plain) == await _pages(backend, counted)
        first = await backend.search_jobs(plain)
        assert (first.total_count, len(first.jobs)) == (None, 3)
        # Whether it counts may change from page to page.
        second = await backend.search_jobs(replace(counted, cursor=first.next_cursor))
        assert (second.total_count, len(second.jobs)) == (7, 3)


async def test_search_pages_stay_apart_while_jobs_come_and_go(backend: Contract) -> None:
    jobs = [_at(n) for n in range(9)]
    await backend.enqueue_jobs(jobs)
    search = replace(_ASCENDING, limit=3)
    first = await backend.search_jobs(search)
    # One that was on the first page goes, and one comes before it: nothing moves up or down.
    await backend.cancel_jobs([], [jobs[1].id])
    await backend.delete_jobs([], [jobs[1].id])
    await backend.enqueue_job(_at(-1))
    second = await backend.search_jobs(replace(search, cursor=first.next_cursor))
    assert [job.id for job in second.jobs] == [job.id for job in jobs[3:6]]
    # The very job that the cursor names may go, too.
    await backend.cancel_jobs([], [jobs[5].id])
    await backend.delete_jobs([], [jobs[5].id])
    third = await backend.search_jobs(replace(search, cursor=second.next_cursor))
    assert [job.id for job in third.jobs] == [job.id for job in jobs[6:]]
    assert third.next_cursor == ""


async def test_search_refuses_the_cursor_of_another_search(backend: Contract) -> None:
    await backend.enqueue_jobs([_at(n, type="t") for n in range(5)])
    page = await backend.search_jobs(JobSearch(limit=2, types=frozenset({"t"})))
    assert page.next_cursor
    others = [
        JobSearch(limit=2, cursor=page.next_cursor),
        JobSearch(limit=2, cursor=page.next_cursor, types=frozenset({"u"})),
        JobSearch(
            limit=2,
            cursor=page.next_cursor,
            types=frozenset({"t"}),
            order=SearchOrder.CREATED_ASC,
        ),
        JobSearch(limit=2, cursor=page.next_cursor, types=frozenset({"t"}), namespace="other"),
    ]
    for other in others:
        with pytest.raises(InvalidArgument) as raised:
            await backend.search_jobs(other)
        assert raised.value.field == "cursor"


@pytest.mark.parametrize("cursor", ["x", "ü", "AAAA", "e30=", "e30", "bnVsbA", "W10", "-1", "0"])
async def test_search_refuses_a_cursor_that_is_none(backend: Contract, cursor: str) -> None:
    with pytest.raises(InvalidArgument) as raised:
        await backend.search_jobs(JobSearch(cursor=cursor))
    assert raised.value.field == "cursor"


_WRONG: Final[dict[str, tuple[Any, ...]]] = {
    "limit": (0, -1, 1001, 1.0, True, None, "1"),
    "namespace": ("", "a\x00", None),
    "cursor": (None, 7, "\ud800", "x" * 10_240),
    "types": ("t", None, frozenset({""}), frozenset({7}), frozenset({"a\x00"})),
    "states": (JobState.RUNNING.value, None, frozenset({"x"}), frozenset({7})),
    "phases": (Phase.FAILED.value, None, frozenset({"x"}), frozenset({JobState.RUNNING})),
    "priorities": ("HIGH", None, frozenset({"x"})),
    "tags": ("a", None, frozenset({""}), frozenset({"x" * 129})),
    "created_after": (datetime(2024, 1, 1), "2024", 7),
    "created_before": (datetime(2024, 1, 1), "2024"),
    "updated_after": (datetime(2024, 1, 1), "2024"),
    "order": ("newest", None),
}


@pytest.mark.parametrize("field", _WRONG)
async def test_search_names_a_wrong_field(backend: Contract, field: str) -> None:
    for value in _WRONG[field]:
        with pytest.raises(InvalidArgument) as raised:
            await backend.search_jobs(JobSearch(**{field: value}))
        assert raised.value.field == field, value


async def test_search_by_phase_sees_the_newest_error(backend: Contract) -> None:
    job = await submitted(backend, max_attempts=5)
    failed = frozenset({Phase.FAILED})
    for category, found in ((ErrorCategory.TIMEOUT, set()), (ErrorCategory.PERMANENT, {job.id})):
        token = (await claim(backend, job)).token
        error = ErrorInfo("x", category)
        await settle(backend, Outcome(job.id, Event.FAIL, token=token, error=error))
        assert await _found(backend, phases=failed) == found
