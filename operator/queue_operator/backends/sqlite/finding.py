"""Searches: the statements, and what their parameters are."""

import json
from collections.abc import Collection, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from queue_operator.backends.paging import decode_cursor
from queue_operator.backends.protocol import FailureSearch, JobSearch, SearchOrder
from queue_operator.backends.sql import load
from queue_operator.backends.sqlite.rows import microseconds
from queue_operator.domain.views import Phase, states_of

_CONDITION: Final = load(__package__, "search_condition")
_FIRST, _LAST = -(2**63), 2**63 - 1


def _statement(name: str) -> str:
    return load(__package__, name).replace("{condition}", _CONDITION)


PAGE: Final[Mapping[SearchOrder, str]] = {
    SearchOrder.CREATED_ASC: _statement("search_created_asc"),
    SearchOrder.CREATED_DESC: _statement("search_created_desc"),
    SearchOrder.UPDATED_DESC: _statement("search_updated_desc"),
}
COUNT: Final = _statement("search_count")
FAILURES: Final = _statement("failures")
TOTALS: Final = _statement("failure_totals")


def of_jobs(search: JobSearch, now: datetime) -> dict[str, Any]:
    return {
        **_common(search),
        **_place(search, down=search.order is not SearchOrder.CREATED_ASC),
        **tags_of(search.tags),
        "priorities": _texts(search.priorities),
        "categories": "[]",
        "created_after": _bound(search.created_after, _FIRST),
        "created_before": _bound(search.created_before, _LAST),
        "updated_after": _bound(search.updated_after, _FIRST),
        "updated_before": _LAST,
        "now": microseconds(now),
        "code": None,
    }


def of_failures(search: FailureSearch) -> dict[str, Any]:
    return {
        **_common(search),
        **_place(search, down=True),
        **tags_of(()),
        "priorities": "[]",
        "categories": _texts(search.categories),
        "created_after": _FIRST,
        "created_before": _LAST,
        "updated_after": _FIRST,
        "updated_before": _LAST,
        "failed_after": _bound(search.failed_after, _FIRST),
        "failed_before": _bound(search.failed_before, _LAST),
        "now": 0,
        "code": search.error_code or None,
    }


def tags_of(tags: Collection[str]) -> dict[str, Any]:
    return {"tags": _texts(tags), "tag_count": len(tags)}


def _common(search: JobSearch | FailureSearch) -> dict[str, Any]:
    return {
        "namespace": search.namespace,
        "types": _texts(search.types),
        "states": _texts(search.states),
        "seen_states": _texts(states_of(search.phases)),
        "pending": Phase.PENDING in search.phases,
        "delayed": Phase.DELAYED in search.phases,
        "scheduled": Phase.SCHEDULED in search.phases,
        "permanent": Phase.FAILED in search.phases,
        "used_up": Phase.DEAD_LETTER in search.phases,
        # One more than fits on the page tells whether there is another.
        "max_rows": search.limit + 1,
    }


def _place(search: JobSearch | FailureSearch, *, down: bool) -> dict[str, int]:
    """Where the page begins: after all that comes before the first one, without a cursor."""
    cursor = decode_cursor(search)
    if cursor is None:
        edge = _LAST if down else _FIRST
        return {"after_at": edge, "after_number": edge}
    at, number = cursor
    return {"after_at": microseconds(at), "after_number": number}


def _texts(words: Collection[str | StrEnum]) -> str:
    return json.dumps(sorted(words))


def _bound(at: datetime | None, otherwise: int) -> int:
    return otherwise if at is None else microseconds(at)
