"""Searches as steps: all pages of one, compared as a whole."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import groupby
from typing import Any, Final

from hypothesis import strategies as st
from tests.model.given import Short, few_tags, mostly, priorities, spaces, types
from tests.model.sides import Side

from queue_operator.backends.protocol import FailureSearch, JobSearch, SearchOrder
from queue_operator.domain.errors import InvalidArgument
from queue_operator.domain.job import Job
from queue_operator.domain.outcome import ErrorCategory
from queue_operator.domain.states import JobState

_BOUNDS_S: Final = (-30.0, -130.0, -330.0)
_NONE: Final = frozenset[object]()
_FAILED: Final = (JobState.DEAD_LETTER, JobState.FAILED_RETRY)


@dataclass(frozen=True)
class Asked(Short):
    """A search; `bounds` are its times as seconds from the step that makes it."""

    options: dict[str, Any]
    bounds: dict[str, float] = field(default_factory=dict)
    cursor: str = ""

    def __repr__(self) -> str:
        given = {k: v for k, v in {**self.options, **self.bounds}.items() if v not in (None, _NONE)}
        return f"Asked({given!r}, {self.cursor!r})"

    def _all(self, side: Side) -> dict[str, Any]:
        times = {name: side.began + timedelta(seconds=s) for name, s in self.bounds.items()}
        return {**self.options, **times, "cursor": self.cursor}

    def jobs(self, side: Side) -> JobSearch:
        return JobSearch(**self._all(side))

    def failures(self, side: Side) -> FailureSearch:
        return FailureSearch(**self._all(side))


async def all_pages(side: Side, asked: Asked) -> Any:
    """Every page of a job search, without what no store promises."""
    search = asked.jobs(side)
    pages = [await side.backend.search_jobs(search)]
    while pages[-1].next_cursor:
        search = replace(search, cursor=pages[-1].next_cursor)
        pages.append(await side.backend.search_jobs(search))
    other = replace(search, types=frozenset({"no such type"}))
    refused = not search.cursor or await _refuses(side, other)
    jobs = [job for page in pages for job in page.jobs]
    return {
        "sizes": [len(page.jobs) for page in pages],
        "totals": [(page.total_count, page.total_is_exact) for page in pages],
        "order": _by_change(side, jobs) if search.order is SearchOrder.UPDATED_DESC else _ids(jobs),
        "refuses the cursor of another": refused,
    }


async def all_failures(side: Side, asked: Asked) -> Any:
    """As `all_pages`, of a search for failures."""
    search = asked.failures(side)
    pages = [await side.backend.search_failures(search)]
    while pages[-1].next_cursor:
        search = replace(search, cursor=pages[-1].next_cursor)
        pages.append(await side.backend.search_failures(search))
    totals = [
        (page.total_count, dict(page.by_category), dict(page.by_code), dict(page.by_type))
        for page in pages
    ]
    order = _by_change(side, [job for page in pages for job in page.jobs])
    return {"sizes": [len(page.jobs) for page in pages], "totals": totals, "order": order}


async def _refuses(side: Side, search: JobSearch) -> bool:
    try:
        await side.backend.search_jobs(search)
    except InvalidArgument as error:
        return error.field == "cursor"
    return False


def _ids(jobs: Sequence[Job]) -> list[str]:
    return [job.id for job in jobs]


def _by_change(side: Side, jobs: Sequence[Job]) -> list[tuple[str, list[str]]]:
    """The order of jobs that one call changed is the store's own."""
    return [
        (when, sorted(_ids(list(group))))
        for when, group in groupby(jobs, key=lambda job: side.when(job.updated_at))
    ]


def _bounds(*names: str) -> st.SearchStrategy[dict[str, float]]:
    some = st.dictionaries(st.sampled_from(names), st.sampled_from(_BOUNDS_S), max_size=2)
    return mostly_empty(some)


def mostly_empty(some: st.SearchStrategy[dict[str, float]]) -> st.SearchStrategy[dict[str, float]]:
    return st.one_of(st.just({}), some)


_yes_or_no = mostly(None, False, True)
_cursors = mostly("", *[""] * 8, "nonsense")


@st.composite
def searches(draw: st.DrawFn) -> Asked:
    options = {
        "namespace": draw(spaces),
        "types": draw(types),
        "states": draw(st.frozensets(st.sampled_from(list(JobState)), max_size=3)),
        "priorities": draw(mostly(frozenset(), frozenset({draw(priorities)}))),
        "tags": draw(few_tags),
        "delayed": draw(_yes_or_no),
        "waiting": draw(_yes_or_no),
        "permanent": draw(_yes_or_no),
        "order": draw(st.sampled_from(list(SearchOrder))),
        "limit": draw(st.integers(1, 3)),
    }
    bounds = draw(_bounds("created_after", "created_before", "updated_after"))
    return Asked(options, bounds, draw(_cursors))


@st.composite
def failures(draw: st.DrawFn) -> Asked:
    options = {
        "namespace": draw(spaces),
        "states": draw(st.frozensets(st.sampled_from(_FAILED), max_size=2)),
        "categories": draw(st.frozensets(st.sampled_from(list(ErrorCategory)), max_size=2)),
        "types": draw(types),
        "error_code": draw(mostly("", "E1", "E2")),
        "permanent": draw(_yes_or_no),
        "limit": draw(st.integers(1, 3)),
    }
    return Asked(options, draw(_bounds("failed_after", "failed_before")), draw(_cursors))
