"""`queue-operator list` and `failures`: which jobs there are, and which went wrong."""

from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Any, Final

import click
from rich.console import RenderableType
from rich.text import Text

from queue_operator.backends.lookups import SearchOrder
from queue_operator.cli import rendering
from queue_operator.cli.command import ExampleCommand
from queue_operator.cli.connection import Remote, remote
from queue_operator.cli.selection import failure_criteria, failure_fields, job_criteria, job_fields
from queue_operator.cli.values import JobId
from queue_operator.client import (
    FailureDetails,
    FailureSearch,
    FailureSearchResult,
    JobSearch,
    JobSearchResult,
    JobStatus,
    Pagination,
    QueueClient,
)
from queue_operator.client.models import AttemptInfo, FailureInfo
from queue_operator.client.operations import PAGE_JOBS, next_failures

_LIMIT: Final = 50
_LIMITS: Final = click.IntRange(1, PAGE_JOBS)


def _paging(function: Any) -> Any:
    for option in (
        click.option("--cursor", help="Where the page before ended: its next_cursor."),
        click.option("-a", "--all", "everything", is_flag=True, help="All that match."),
        click.option("--limit", type=_LIMITS, default=_LIMIT, show_default=True, help="At most."),
    ):
        function = option(function)
    return function


@click.command(
    "list",
    cls=ExampleCommand,
    examples=(
        "queue-operator list --state FAILED --tag region=eu",
        "queue-operator list --type send-email --created-after 2h --all -o jsonl > jobs.jsonl",
        "queue-operator list --state PENDING -o ids | queue-operator cancel -",
    ),
)
@job_criteria
@click.option(
    "--order",
    type=click.Choice(list(SearchOrder), case_sensitive=False),
    default=SearchOrder.CREATED_DESC,
    show_default=True,
)
@_paging
@remote("jsonl", "ids")
def list_jobs(
    remote: Remote,
    order: SearchOrder,
    limit: int,
    everything: bool,
    cursor: str | None,
    **criteria: Any,
) -> None:
    """List jobs, the newest first.

    `--output ids` prints ids alone, for other commands; `jsonl` one job a line, which with --all
    goes through millions of them.
    """
    search = JobSearch(
        **job_fields(criteria),
        order=order,
        limit=None if everything else limit,
        cursor=cursor,
        include_total=not everything,
    )
    with remote.connected() as queue:
        if everything:
            _all_jobs(remote, queue.search_all(search, namespace=remote.namespace))
            return
        page = queue.search(search, namespace=remote.namespace)
    if remote.output == "json":
        rendering.print_json(page)
        return
    _print_jobs(remote, page.jobs)
    if page.has_more and page.total_count is not None:
        total = rendering.count(page.total_count, "job", at_least=not page.total_is_exact)
        rendering.note(f"{len(page.jobs)} of {total}; --all shows all, --limit more")


def _all_jobs(remote: Remote, jobs: Iterator[JobStatus]) -> None:
    if remote.output == "json":
        found = tuple(jobs)
        rendering.print_json(JobSearchResult(jobs=found, total_count=len(found)))
    else:
        _print_jobs(remote, jobs)


def _print_jobs(remote: Remote, jobs: Iterable[JobStatus]) -> None:
    if remote.output == "table":
        where = f"namespace {remote.namespace}" if remote.namespace else "the token's own namespace"
        rendering.print_rows(job_table(jobs), f"no such jobs in {where}")
        return
    _print_lines(remote, jobs)


def _print_lines(remote: Remote, found: Iterable[JobStatus | FailureDetails]) -> None:
    for one in found:
        if remote.output == "ids":
            print(one.job_id)
        else:
            rendering.print_line(one)


def job_table(jobs: Iterable[JobStatus]) -> Any:
    """One row a job."""
    made = rendering.table(
        *("JOB", "TYPE", "STATE", "ATTEMPT#", "PRIORITY", "AGE", "CHANGED", "TAGS"),
        expendable=("CHANGED", "TAGS", "PRIORITY", "ATTEMPT"),
        elastic=("TYPE", "STATE", "TAGS"),
    )
    for job in jobs:
        made.add_row(
            rendering.plain(job.job_id),
            rendering.plain(job.type),
            rendering.state(job.state, job.cancel_requested),
            str(job.attempt),
            job.priority.value,
            rendering.age(job.created_at),
            rendering.age(job.updated_at),
            rendering.tags(job.tags),
        )
    return made


@click.command(
    cls=ExampleCommand,
    examples=(
        "queue-operator failures --failed-after 1h",
        "queue-operator failures --type send-email --category TIMEOUT --all -o ids",
        "queue-operator failures 01a2202b-60ba-7527-8384-af65995ae3ce",
    ),
)
@click.argument("job_id", required=False, type=JobId())
@failure_criteria
@_paging
@remote("jsonl", "ids")
def failures(
    remote: Remote,
    job_id: str | None,
    limit: int,
    everything: bool,
    cursor: str | None,
    **criteria: Any,
) -> None:
    """List failed jobs and how they spread, or show every attempt of JOB_ID."""
    fields = failure_fields(criteria)
    with remote.connected() as queue:
        if job_id is not None:
            if fields or everything or cursor:
                raise click.UsageError("give JOB_ID or filters, not both")
            _one(
                remote, queue.failure(job_id, include_all_attempts=True, namespace=remote.namespace)
            )
            return
        pagination = Pagination(cursor=cursor, limit=PAGE_JOBS if everything else limit)
        search = FailureSearch(**fields, pagination=pagination)
        _listed(remote, queue, search, everything)


def _listed(remote: Remote, queue: QueueClient, search: FailureSearch, everything: bool) -> None:
    if everything and remote.output in ("jsonl", "ids"):
        _print_lines(remote, queue.failures_all(search, namespace=remote.namespace))
        return
    page = queue.search_failures(search, namespace=remote.namespace)
    if everything and (rest := next_failures(search, page)) is not None:
        more = queue.failures_all(rest, namespace=remote.namespace)
        whole = {"failures": (*page.failures, *more), "next_cursor": None}
        page = page.model_copy(update=whole)
    if remote.output == "json":
        rendering.print_json(page)
    elif remote.output == "table":
        _print_page(page)
    else:
        _print_lines(remote, page.failures)


def _print_page(page: FailureSearchResult) -> None:
    rendering.print_rows(failure_table(page.failures), "no failed jobs")
    for title, counted in (
        ("CATEGORY", page.by_category),
        ("CODE", page.by_code),
        ("TYPE", page.by_type),
    ):
        if (made := rendering.spread(title, counted)) is not None:
            rendering.show(Text(), made)
    if page.next_cursor is not None:
        total = rendering.count(page.total_count, "job")
        rendering.note(f"{len(page.failures)} of {total}; --all shows all, --limit more")


def failure_table(found: Iterable[FailureDetails]) -> Any:
    """One row a job."""
    made = rendering.table(
        *("JOB", "TYPE", "STATE", "ATTEMPTS#", "CODE", "FAILED", "ERROR"),
        expendable=("ATTEMPTS", "TYPE", "FAILED"),
        elastic=("TYPE", "CODE", "ERROR"),
    )
    for one in found:
        error = one.failure
        made.add_row(
            rendering.plain(one.job_id),
            rendering.plain(one.type),
            _state(one),
            str(one.total_attempts),
            rendering.plain(error.code),
            rendering.age(error.timestamp),
            rendering.plain(error.message.partition("\n")[0]),
        )
    return made


def _state(details: FailureDetails) -> Text:
    """As it is now; an older server tells how the job failed."""
    phase = details.state or details.final_state
    return Text("-") if phase is None else rendering.state(phase)


def _one(remote: Remote, details: FailureDetails) -> None:
    if remote.output == "ids":
        print(details.job_id)
    elif remote.output == "jsonl":
        rendering.print_line(details)
    elif remote.output == "json":
        rendering.print_json(details)
    else:
        rendering.show(*_story(details))


def _story(details: FailureDetails) -> Iterator[RenderableType]:
    yield rendering.facts(
        [
            ("job", details.job_id),
            ("type", details.type),
            ("state", _state(details)),
            ("attempts", details.total_attempts),
        ]
    )
    attempts = details.attempts or (
        AttemptInfo(attempt=details.failure.attempt, failure=details.failure),
    )
    for attempt in attempts:
        yield Text()
        yield Text(f"attempt {attempt.attempt} {attempt.result or ''}".rstrip(), style="bold")
        yield _attempt(attempt.failure, attempt)


def _attempt(failure: FailureInfo | None, attempt: AttemptInfo) -> RenderableType:
    pairs: list[tuple[str, Any]] = [
        ("started", rendering.moment(attempt.started_at)),
        ("ended", rendering.moment(attempt.finished_at)),
    ]
    ran = attempt if attempt.worker_id or failure is None else failure
    worker = " on ".join(part for part in (ran.worker_id, ran.host) if part)
    pairs.append(("worker", worker))
    if failure is not None:
        took = failure.duration_ms
        pairs += [
            ("took", None if took is None else rendering.duration(timedelta(milliseconds=took))),
            ("error", rendering.fault(failure)),
            *((key, value) for key, value in failure.context.items()),
            ("stack trace", failure.stack_trace),
        ]
    return rendering.facts(pairs)
