"""Options that select jobs."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

import click

from queue_operator.cli.values import Tag, When, tag_map
from queue_operator.client import (
    FailureFilter,
    FailureSearch,
    JobFilter,
    JobSearch,
    Pagination,
    TimeRange,
)
from queue_operator.domain.ordering import Priority
from queue_operator.domain.outcome import ErrorCategory
from queue_operator.domain.views import Phase

_FAILED = (Phase.FAILED, Phase.DEAD_LETTER, Phase.RETRYING)

Command = Callable[..., Any]


def _choice(values: Any) -> click.Choice[Any]:
    return click.Choice(list(values), case_sensitive=False)


def _with(function: Command, *options: Callable[[Any], Any]) -> Command:
    for option in reversed(options):
        function = option(function)
    return function


def job_criteria(function: Command) -> Command:
    """Filters on jobs: the options that `job_fields` takes."""
    return _with(
        function,
        click.option("-t", "--type", "types", multiple=True, help="Job type."),
        click.option(
            "-s", "--state", "states", type=_choice(Phase), multiple=True, help="State now."
        ),
        click.option("--priority", "priorities", type=_choice(Priority), multiple=True),
        click.option(
            "--tag", "tags", type=Tag(), multiple=True, help="All tags given must be there."
        ),
        click.option("--created-after", type=When(), help="2h (ago), or 2030-01-31T12:00:00Z."),
        click.option("--created-before", type=When(), help="Likewise."),
        click.option("--updated-after", type=When(), help="Likewise."),
    )


def failure_criteria(function: Command) -> Command:
    """Filters on failed jobs: the options that `failure_fields` takes."""
    return _with(
        function,
        click.option("-t", "--type", "types", multiple=True, help="Job type."),
        click.option(
            "-s",
            "--state",
            "states",
            type=_choice(_FAILED),
            multiple=True,
            help="State now.",
        ),
        click.option("--category", "failure_category", type=_choice(ErrorCategory), multiple=True),
        click.option("--code", "error_code", help="Error code."),
        click.option("--failed-after", type=When(), help="2h (ago), or 2030-01-31T12:00:00Z."),
        click.option("--failed-before", type=When(), help="Likewise."),
    )


def job_fields(options: Mapping[str, Any]) -> dict[str, Any]:
    """The filters that were given, as JobFilter and JobSearch have them."""
    fields: dict[str, Any] = {
        "types": tuple(options["types"]),
        "states": tuple(options["states"]),
        "priorities": tuple(options["priorities"]),
        "tags": tag_map(options["tags"]),
        "created_after": options["created_after"],
        "created_before": options["created_before"],
        "updated_after": options["updated_after"],
    }
    return {name: value for name, value in fields.items() if value}


def failure_fields(options: Mapping[str, Any]) -> dict[str, Any]:
    """The filters that were given, as FailureFilter and FailureSearch have them."""
    after: datetime | None = options["failed_after"]
    before: datetime | None = options["failed_before"]
    fields: dict[str, Any] = {
        "types": tuple(options["types"]),
        "states": tuple(options["states"]),
        "failure_category": tuple(options["failure_category"]),
        "error_code": options["error_code"],
        "time_range": TimeRange(after=after, before=before) if after or before else None,
    }
    return {name: value for name, value in fields.items() if value}


def job_sample(filter: JobFilter, limit: int) -> JobSearch:
    """The first of those that the filter finds."""
    return JobSearch(**_criteria(filter), limit=limit, include_total=False)


def failure_sample(filter: FailureFilter, limit: int) -> FailureSearch:
    """The first of those that the filter finds."""
    return FailureSearch(**_criteria(filter), pagination=Pagination(limit=limit))


def _criteria(filter: JobFilter | FailureFilter) -> dict[str, Any]:
    return {name: getattr(filter, name) for name in filter.model_fields_set - {"all"}}
