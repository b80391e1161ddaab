"""`queue-operator cancel`, `retry` and `delete`: of one job, of several, of all that match."""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, Final

import click

from queue_operator.cli import connection, rendering
from queue_operator.cli.command import ExampleCommand
from queue_operator.cli.connection import BULK_ANSWER_S, Remote, confirm, remote
from queue_operator.cli.find import failure_table, job_table
from queue_operator.cli.selection import (
    failure_criteria,
    failure_fields,
    failure_sample,
    job_criteria,
    job_fields,
    job_sample,
)
from queue_operator.cli.values import Duration, JobId
from queue_operator.client import FailureFilter, JobFilter, QueueClient
from queue_operator.client.models import FINISHED, BatchRetryResult, BulkResult
from queue_operator.domain.ordering import Priority
from queue_operator.domain.views import Phase

_SAMPLE: Final = 5
_SHOWN: Final = 20
_LIVE: Final = frozenset(Phase) - FINISHED
_DONE: Final = ("CANCELLED", "CANCEL_REQUESTED", "ALREADY_COMPLETE", "QUEUED", "DELETED")

Command = Callable[..., Any]
Filter = JobFilter | FailureFilter


def _bulk(function: Command) -> Command:
    """What the three have alike."""
    for option in (
        click.option("-y", "--yes", is_flag=True, help="Do not ask before all that match."),
        click.option("--dry-run", is_flag=True, help="Tell how many, and change nothing."),
        click.option(
            "-a", "--all", "everything", is_flag=True, help="Every job, if no filter is given."
        ),
        click.argument("job_ids", nargs=-1, metavar="[JOB_ID]...", type=JobId()),
    ):
        function = option(function)
    return function


@dataclass(frozen=True, slots=True)
class Change:
    """One of the three. `past` is what a job then is, `skipped` why one is left alone, and
    `is_fine` whether that is as good to whoever named it; `all_of` changes all jobs of a selection
    and tells what came of each request, `dry` none of them.
    """

    past: str
    skipped: str
    is_fine: bool
    all_of: Callable[..., BulkResult]
    dry: Callable[..., BulkResult]
    sample: Callable[[Any], Any]


@click.command(
    cls=ExampleCommand,
    examples=(
        'queue-operator cancel 01a2202b-60ba-7527-8384-af65995ae3ce --reason "wrong file"',
        "queue-operator cancel --type resize --state SCHEDULED --dry-run",
        "queue-operator cancel --tag customer=7 --force --yes",
    ),
)
@_bulk
@job_criteria
@click.option("--reason", default="", help="Why; the worker sees it too.")
@click.option(
    "--force",
    is_flag=True,
    help="Handlers of running jobs are to stop at once; those in threads end by themselves.",
)
@remote()
def cancel(
    remote: Remote,
    job_ids: tuple[str, ...],
    everything: bool,
    dry_run: bool,
    yes: bool,
    reason: str,
    force: bool,
    **criteria: Any,
) -> None:
    """Cancel jobs, by id or all that match. - reads ids from standard input.

    Waiting jobs will not run; running ones are asked to stop. One that has ended is left as it is,
    which is told. The exit code is 1 if a job could not be cancelled.
    """
    ids, found = _selected(job_ids, JobFilter, job_fields(criteria), everything)
    how: dict[str, Any] = {"reason": reason, "force": force, "namespace": remote.namespace}
    with remote.connected(timeout_s=BULK_ANSWER_S) as queue:
        if len(ids) == 1 and not dry_run:
            told = queue.cancel(ids[0], **how)
            _one(remote, told, f"{told.job_id} {told.status}: {told.message}", told.status)
            return
        change = Change(
            "cancelled",
            " (ended, or being cancelled already)",
            True,
            partial(queue.cancel_all, **how),
            partial(queue.cancel_jobs, **how, dry_run=True),
            lambda filter: _jobs(remote, queue, filter, _LIVE),
        )
        _run(remote, change, ids, found, dry_run=dry_run, yes=yes)


@click.command(
    cls=ExampleCommand,
    examples=(
        "queue-operator retry 01a2202b-60ba-7527-8384-af65995ae3ce --reset-attempts",
        "queue-operator retry --type send-email --code SMTP_DOWN --failed-after 2h --dry-run",
        "queue-operator retry --category TIMEOUT --priority LOW --yes",
    ),
)
@_bulk
@failure_criteria
@click.option("--reset-attempts", is_flag=True, help="All attempts anew, not one more.")
@click.option(
    "--priority", type=click.Choice(list(Priority), case_sensitive=False), help="From now on."
)
@click.option("--delay", type=Duration(), help="Not before so long from now.")
@remote()
def retry(
    remote: Remote,
    job_ids: tuple[str, ...],
    everything: bool,
    dry_run: bool,
    yes: bool,
    reset_attempts: bool,
    priority: Priority | None,
    delay: timedelta | None,
    **criteria: Any,
) -> None:
    """Run failed jobs again, by id or all that match. - reads ids from standard input.

    The exit code is 1 if a job could not be queued, or none of those given.
    """
    ids, found = _selected(job_ids, FailureFilter, failure_fields(criteria), everything)
    how: dict[str, Any] = {
        "reset_attempts": reset_attempts,
        "priority": priority,
        "delay": delay,
        "namespace": remote.namespace,
    }
    with remote.connected(timeout_s=BULK_ANSWER_S) as queue:
        if len(ids) == 1 and not dry_run:
            told = queue.retry(ids[0], **how)
            why = told.message or told.new_state.value
            _one(remote, told, f"{told.job_id} {told.status}: {why}", told.status)
            return
        change = Change(
            "queued",
            "",
            False,
            partial(queue.retry_all, **how),
            partial(queue.retry_jobs, **how, dry_run=True),
            lambda filter: _failures(remote, queue, filter),
        )
        _run(remote, change, ids, found, dry_run=dry_run, yes=yes)


@click.command(
    cls=ExampleCommand,
    examples=(
        "queue-operator delete 01a2202b-60ba-7527-8384-af65995ae3ce",
        "queue-operator delete --state CANCELLED --created-before 7d --dry-run",
        "queue-operator delete --state COMPLETED --type ping --yes",
    ),
)
@_bulk
@job_criteria
@remote()
def delete(
    remote: Remote,
    job_ids: tuple[str, ...],
    everything: bool,
    dry_run: bool,
    yes: bool,
    **criteria: Any,
) -> None:
    """Delete jobs that have ended, by id or all that match. - reads ids from standard input.

    The exit code is 1 if a job could not be deleted, or none of those given.
    """
    ids, found = _selected(job_ids, JobFilter, job_fields(criteria), everything)
    how: dict[str, Any] = {"namespace": remote.namespace}
    with remote.connected(timeout_s=BULK_ANSWER_S) as queue:
        if len(ids) == 1 and not dry_run:
            queue.delete(ids[0], **how)
            told = {"job_id": ids[0], "status": "DELETED"}
            _one(remote, told, f"{ids[0]} DELETED", "DELETED")
            return
        change = Change(
            "deleted",
            " (not ended yet)",
            False,
            partial(queue.delete_all, **how),
            partial(queue.delete_jobs, **how, dry_run=True),
            lambda filter: _jobs(remote, queue, filter, FINISHED),
        )
        _run(remote, change, ids, found, dry_run=dry_run, yes=yes)


def _selected(
    job_ids: tuple[str, ...],
    kind: type[JobFilter] | type[FailureFilter],
    fields: dict[str, Any],
    everything: bool,
) -> tuple[Sequence[str], Filter | None]:
    """The ids, or the filter, that the command line names. Raises UsageError for neither."""
    if job_ids and (fields or everything):
        raise click.UsageError("give ids or filters, not both")
    if job_ids == ("-",):
        job_ids = tuple(dict.fromkeys(_ids_of(sys.stdin.buffer)))
        if not job_ids:
            raise click.UsageError("standard input holds no ids")
        return job_ids, None
    if job_ids:
        return tuple(dict.fromkeys(job_ids)), None
    if not (fields or everything):
        raise click.UsageError("give ids, or filters, or --all for every job of the namespace")
    return (), kind(**fields, all=not fields)


def _ids_of(stream: Iterable[bytes]) -> Iterator[str]:
    for number, line in enumerate(stream, start=1):
        try:
            text = line.decode().strip()
        except UnicodeDecodeError:
            raise click.UsageError(f"standard input: line {number} is not UTF-8") from None
        if text:
            yield text


def _run(
    remote: Remote,
    change: Change,
    ids: Sequence[str],
    found: Filter | None,
    *,
    dry_run: bool,
    yes: bool,
) -> None:
    if found is None:
        if dry_run:
            _finish(remote, change, change.dry(ids), given=True)
        else:
            _finish(remote, change, _apply(change, ids, None, len(ids)), given=True)
        return
    expected = change.dry(filter=found)
    if dry_run or not expected.changed:
        _finish(remote, change, expected, given=False)
        if remote.output == "table" and expected.changed:
            rendering.show(change.sample(found))
        return
    if not yes:
        _confirm(change, expected, found)
    total = None if expected.has_more else expected.changed
    _finish(remote, change, _apply(change, None, found, total), given=False)


def _apply(
    change: Change, ids: Sequence[str] | None, found: Filter | None, total: int | None
) -> BulkResult:
    bar, task = rendering.progress(total, change.past)
    with bar:
        return change.all_of(
            ids, filter=found, on_result=lambda result: bar.advance(task, result.changed)
        )


def _confirm(change: Change, expected: BulkResult, found: Filter) -> None:
    many = rendering.count(expected.changed, "job", at_least=expected.has_more)
    if connection.answerable():
        rendering.show(change.sample(found), stderr=True)
    confirm(
        f"{many} will be {change.past}. Go on?",
        f"{many} would be {change.past}: give --yes, or --dry-run to look",
    )


def _finish(remote: Remote, change: Change, result: BulkResult, *, given: bool) -> None:
    """Prints the result, and ends the command with 1 if something went wrong."""
    if remote.output == "json":
        rendering.print_json(result)
    else:
        _tell(change, result)
    if result.failed or (given and not result.changed and not change.is_fine):
        sys.exit(1)


def _tell(change: Change, result: BulkResult) -> None:
    would = "would be " if result.dry_run else ""
    many = rendering.count(result.changed, "job", at_least=result.dry_run and result.has_more)
    text = f"{many} {would}{change.past}"
    if result.skipped:
        text += f", {result.skipped:,} skipped{change.skipped}"
    if result.failed:
        text += f", {result.failed:,} failed"
    print(text)
    skips = result.not_retriable if isinstance(result, BatchRetryResult) else ()
    told = (*result.errors, *skips)
    for error in told[:_SHOWN]:
        rendering.note(f"{error.job_id}: {error.message}")
    if len(told) > _SHOWN:
        rendering.note(f"… and {len(told) - _SHOWN:,} more; --output json lists them")


def _one(remote: Remote, told: Any, text: str, status: str) -> None:
    if remote.output == "json":
        rendering.print_json(told)
    else:
        print(rendering.plain(text))
    if status not in _DONE:
        sys.exit(1)


def _jobs(remote: Remote, queue: QueueClient, found: JobFilter, meant: frozenset[Phase]) -> Any:
    """Some that would be changed: the filter is about those `meant` only."""
    states = tuple(meant.intersection(found.states) if found.states else meant)
    search = job_sample(found.model_copy(update={"states": states}), _SAMPLE)
    return job_table(queue.search(search, namespace=remote.namespace).jobs)


def _failures(remote: Remote, queue: QueueClient, found: FailureFilter) -> Any:
    """Likewise: a retry of all means those that have failed for good."""
    states = found.states or (Phase.FAILED, Phase.DEAD_LETTER)
    search = failure_sample(found.model_copy(update={"states": states}), _SAMPLE)
    return failure_table(queue.search_failures(search, namespace=remote.namespace).failures)
