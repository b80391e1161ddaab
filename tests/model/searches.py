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
from queue_operator.domain.views import Phase

_BOUNDS_S: Final = (-30.0, -130.0, -330.0)
_NONE: Final = frozenset[object]()
_FAILED: Final = (JobState.DEAD_LETTER, JobState.FAILED_RETRY)
_FAILED_PHASES: Final = (Phase.FAILED, Phase.DEAD_LETTER, Phase.RETRYING)


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


_cursors = mostly("", *[""] * 4, "nonsense")


_bounds = st.sampled_from(_BOUNDS_S)
_JOB_FILTERS: Final[dict[str, st.SearchStrategy[Any]]] = {
    "types": types,
    "states": st.frozensets(st.sampled_from(list(JobState)), min_size=1, max_size=3),
    "priorities": st.frozensets(priorities, min_size=1, max_size=2),
    "tags": few_tags,
    "phases": st.frozensets(st.sampled_from(list(Phase)), min_size=1, max_size=4),
}
_FAILURE_FILTERS: Final[dict[str, st.SearchStrategy[Any]]] = {
    "states": st.frozensets(st.sampled_from(_FAILED), max_size=2),
    "categories": st.frozensets(st.sampled_from(list(ErrorCategory)), min_size=1, max_size=2),
    "types": types,
    "error_code": st.sampled_from(["E1", "E2"]),
    "phases": st.frozensets(st.sampled_from(_FAILED_PHASES), min_size=1, max_size=2),
}
_JOB_TIMES: Final = ("created_after", "created_before", "updated_after")
_FAILURE_TIMES: Final = ("failed_after", "failed_before")


@st.composite
def _asked(
    draw: st.DrawFn, filters: dict[str, st.SearchStrategy[Any]], times: Sequence[str]
) -> Asked:
    """A search by two filters at most: more of them would find nothing."""
    chosen = draw(st.lists(st.sampled_from([*filters, *times]), max_size=2, unique=True))
    options = {name: draw(filters[name]) for name in chosen if name in filters}
    bounds = {name: draw(_bounds) for name in chosen if name in times}
    options |= {"namespace": draw(spaces), "limit": draw(st.integers(1, 3))}
    return Asked(options, bounds, draw(_cursors))


@st.composite
def searches(draw: st.DrawFn) -> Asked:
    asked = draw(_asked(_JOB_FILTERS, _JOB_TIMES))
    order = draw(st.sampled_from(list(SearchOrder)))
    return replace(asked, options=asked.options | {"order": order})


def failures() -> st.SearchStrategy[Asked]:
    return _asked(_FAILURE_FILTERS, _FAILURE_TIMES)
