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

_PAGING: Final = ("cursor", "limit")


async def search_failures(call: Call[schemas.NamespaceQuery]) -> Response:
    """One page of the jobs whose last attempt failed, and how all that match spread over
    categories, codes and types.
    """
    body = await call.body(SEARCH_BYTES)
    wanted = parse(body, schemas.FailureSearch)
    search = FailureSearch(
        **filters(call.namespace, wanted),
        limit=wanted.pagination.limit,
        cursor=wanted.pagination.cursor or "",
    )
    try:
        found = await call.services.jobs.search_failures(search)
    except InvalidArgument as error:
        if error.field in _PAGING:
            raise InvalidArgument(f"pagination.{error.field}", error.reason) from None
        raise
    return render(views.page(found))


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
