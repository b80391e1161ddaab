"""Jobs by what they have in common."""

from typing import Any, Final

from fastapi import Response

from queue_operator.api import schemas
from queue_operator.api.operation import Body, Call, Operation, render
from queue_operator.api.parsing import parse
from queue_operator.api.views import jobs as views
from queue_operator.backends.protocol import JobSearch
from queue_operator.domain import tags
from queue_operator.domain.validation import check_tags, check_texts

SEARCH_BYTES: Final = 1024 * 1024
"""The most a body of filters may have."""


async def search_jobs(call: Call[schemas.NamespaceQuery]) -> Response:
    """One page of the jobs that meet all filters."""
    body = await call.body(SEARCH_BYTES)
    wanted = await call.apart(lambda: parse(body, schemas.JobSearch), len(body))
    search = JobSearch(
        **filters(call.namespace, wanted),
        order=wanted.order,
        limit=wanted.limit,
        cursor=wanted.cursor or "",
        count=wanted.include_total,
    )
    return await _found(call, search)


async def list_jobs(call: Call[schemas.JobListQuery]) -> Response:
    """The same as a search, with the filters in the address."""
    wanted, limits = call.query, call.services.limits
    check_texts("type", wanted.type, limits.id_characters)
    check_tags("tag", wanted.tag, limits)
    search = JobSearch(
        namespace=call.namespace,
        types=frozenset(wanted.type),
        phases=frozenset(wanted.state),
        priorities=frozenset(wanted.priority),
        tags=frozenset(wanted.tag),
        created_after=wanted.created_after,
        created_before=wanted.created_before,
        updated_after=wanted.updated_after,
        order=wanted.order,
        limit=wanted.limit,
        cursor=wanted.cursor or "",
        count=wanted.include_total,
    )
    return await _found(call, search)


def filters(namespace: str, wanted: schemas.JobCriteria) -> dict[str, Any]:
    """The filters of a search. Raises InvalidArgument for a bad tag."""
    return {
        "namespace": namespace,
        "types": frozenset(wanted.types),
        "phases": frozenset(wanted.states),
        "priorities": frozenset(wanted.priorities),
        "tags": tags.from_map(wanted.tags),
        "created_after": wanted.created_after,
        "created_before": wanted.created_before,
        "updated_after": wanted.updated_after,
    }


async def _found(call: Call[Any], search: JobSearch) -> Response:
    page = await call.services.jobs.search_jobs(search)
    now = call.services.now()
    total: dict[str, Any] = {}
    if page.total_count is not None:
        total = {"total_count": page.total_count, "total_is_exact": page.total_is_exact}
    return render(
        schemas.JobSearchResult(
            jobs=[views.job_status(job, now) for job in page.jobs],
            next_cursor=page.next_cursor or None,
            has_more=bool(page.next_cursor),
            **total,
        )
    )


OPERATIONS: Final[tuple[Operation[Any], ...]] = (
    Operation(
        id="listJobs",
        method="GET",
        path="/v1/jobs",
        verb="list",
        subject="Search",
        summary="List jobs",
        run=list_jobs,
        query=schemas.JobListQuery,
        answers={200: schemas.JobSearchResult},
    ),
    Operation(
        id="searchJobs",
        method="POST",
        path="/v1/jobs/search",
        verb="list",
        subject="Search",
        summary="Search jobs",
        run=search_jobs,
        query=schemas.NamespaceQuery,
        body=Body(model=schemas.JobSearch),
        answers={200: schemas.JobSearchResult},
    ),
)
