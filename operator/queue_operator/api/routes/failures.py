"""What failed, and why."""

from typing import Any, Final

from fastapi import Response

from queue_operator.api import schemas
from queue_operator.api.operation import Body, Call, Operation, render
from queue_operator.api.parsing import parse
from queue_operator.api.routes.searching import SEARCH_BYTES
from queue_operator.api.views import failures as views
from queue_operator.backends.protocol import FailureSearch
from queue_operator.domain.errors import InvalidArgument

_NAMES: Final = {
    "cursor": "pagination.cursor",
    "limit": "pagination.limit",
    "failed_after": "time_range.after",
    "failed_before": "time_range.before",
}
"""Fields of a search of the queue as the body has them."""


async def search_failures(call: Call[schemas.NamespaceQuery]) -> Response:
    """One page of the jobs whose last attempt failed, and how all that match spread over
    categories, codes and types.
    """
    body = await call.body(SEARCH_BYTES)
    wanted = await call.apart(lambda: parse(body, schemas.FailureSearch), len(body))
    search = FailureSearch(
        **filters(call.namespace, wanted),
        limit=wanted.pagination.limit,
        cursor=wanted.pagination.cursor or "",
    )
    try:
        found = await call.services.jobs.search_failures(search)
    except InvalidArgument as error:
        raise named(error) from None
    return render(views.page(found))


def named(error: InvalidArgument) -> InvalidArgument:
    """The same error in the names of the body."""
    name = _NAMES.get(error.field)
    if name is None:
        return error
    return InvalidArgument(name, error.reason.replace(error.field, name))


def filters(namespace: str, wanted: schemas.FailureCriteria) -> dict[str, Any]:
    """The filters of a search."""
    within = wanted.time_range or schemas.TimeRange()
    return {
        "namespace": namespace,
        "phases": frozenset(wanted.states),
        "categories": frozenset(wanted.failure_category),
        "types": frozenset(wanted.types),
        "error_code": wanted.error_code or "",
        "failed_after": within.after,
        "failed_before": within.before,
    }


OPERATIONS: Final[tuple[Operation[Any], ...]] = (
    Operation(
        id="searchFailures",
        method="POST",
        path="/v1/failures/search",
        verb="list",
        subject="Failures",
        summary="Search failed jobs",
        run=search_failures,
        query=schemas.NamespaceQuery,
        body=Body(model=schemas.FailureSearch),
        answers={200: schemas.FailureSearchResult},
    ),
)
