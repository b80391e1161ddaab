"""Jobs by what they have in common."""

import re
from typing import Annotated, Any, Final, get_origin

from pydantic import BeforeValidator, ConfigDict, Field, StrictBool
from pydantic.fields import FieldInfo

from queue_operator.api.scalars import WHOLE, Timestamp
from queue_operator.api.schemas.base import (
    MANY_TAGS,
    Answer,
    Cursor,
    Name,
    NamespaceQuery,
    Request,
    TagName,
    Tags,
)
from queue_operator.api.schemas.jobs import JobStatus
from queue_operator.backends.protocol import SearchOrder
from queue_operator.domain.ordering import Priority
from queue_operator.domain.views import Phase
from queue_operator.queue.bulk import MOST_JOBS

PAGE: Final = 100
MOST: Final = 1000

Limit = Annotated[int, Field(ge=1, le=MOST), WHOLE]

_TOTAL: Final = "Whether to count the matches; the answer has no total_count otherwise."
_FIRST: Final = SearchOrder.CREATED_ASC
_CURSOR: Final = "`next_cursor` of the page before; good for the same search only."


def any_of() -> Any:
    """A filter with alternatives: no more than a page has jobs."""
    return Field(default_factory=list, max_length=MOST, description="Any of these.")


class JobCriteria(Request):
    """Filters that must all hold; one that is left out does not filter."""

    types: list[Name] = any_of()
    states: list[Phase] = any_of()
    priorities: list[Priority] = any_of()
    tags: Tags = Field(default_factory=dict, max_length=MOST, description="All of these.")
    created_after: Timestamp | None = None
    created_before: Timestamp | None = None
    updated_after: Timestamp | None = None


class JobSearch(JobCriteria):
    """Which jobs, in which order, which page."""

    cursor: Cursor | None = Field(None, description=_CURSOR)
    limit: Limit = Field(PAGE, description="Most jobs of one page.")
    order: SearchOrder = SearchOrder.CREATED_DESC
    include_total: StrictBool = Field(True, description=_TOTAL)


def something(criteria: type[Request]) -> dict[str, Any]:
    """The rule of a filter: it says something, or that all are meant."""
    said: list[dict[str, Any]] = [
        {"required": [name], "properties": {name: _SAID[_kind(field)]}}
        for name, field in criteria.model_fields.items()
    ]
    everything = {"required": ["all"], "properties": {"all": {"const": True}}}
    return {"anyOf": [everything, *said]}


_SAID: Final[dict[str, Any]] = {
    "list": {"type": "array", "minItems": 1},
    "dict": {"type": "object", "minProperties": 1},
    "": {"not": {"type": "null"}},
}


def _kind(field: FieldInfo) -> str:
    origin = get_origin(field.annotation)
    return getattr(origin, "__name__", "") if origin in (list, dict) else ""


Most = Annotated[int, Field(ge=1, le=MOST_JOBS), WHOLE]


class JobFilter(JobCriteria):
    """Which jobs a change is for: the first that match. It has no pages: what was changed matches
    no more, and the same request goes on with the rest.
    """

    model_config = ConfigDict(json_schema_extra=something(JobCriteria))

    all: StrictBool = Field(
        False, description="Must be said where nothing else is: every job of the namespace."
    )
    limit: Most = Field(MOST_JOBS, description="Most jobs of this request.")
    order: SearchOrder = Field(_FIRST, description="Which of them go first.")

    def says_nothing(self) -> bool:
        """Whether every job is meant, and that is not said."""
        return self.model_copy(update={"limit": MOST_JOBS, "order": _FIRST}) == JobFilter()


def _digits(value: object) -> object:
    # Else what is read as a whole number in Python is, such as 1_0.
    if isinstance(value, str) and not _NUMBER.fullmatch(value):
        raise ValueError("must be a whole number")
    return value


DIGITS: Final = BeforeValidator(_digits)
"""Of an integer in an address."""


_NUMBER: Final = re.compile(r"-?[0-9]+")


class JobListQuery(NamespaceQuery):
    """A search in the address."""

    type: list[Name] = Field(default_factory=list, description="Any of these.")
    state: list[Phase] = Field(default_factory=list, description="Any of these.")
    priority: list[Priority] = Field(default_factory=list, description="Any of these.")
    tag: list[TagName] = Field(
        default_factory=list,
        description="All of these: `key=value`.",
        json_schema_extra=MANY_TAGS,
    )
    created_after: Timestamp | None = None
    created_before: Timestamp | None = None
    updated_after: Timestamp | None = None
    cursor: Cursor | None = Field(None, description=_CURSOR)
    limit: Annotated[int, DIGITS] = Field(PAGE, ge=1, le=MOST, description="Most jobs of one page.")
    order: SearchOrder = SearchOrder.CREATED_DESC
    include_total: bool = Field(True, description=_TOTAL)


class JobSearchResult(Answer):
    """One page."""

    jobs: list[JobStatus]
    total_count: int | None = Field(None, description="All that match, not only this page's.")
    total_is_exact: bool = Field(True, description="False: there are more than total_count.")
    next_cursor: str | None = Field(description="Null on the last page.")
    has_more: bool
