"""`queue-operator wait` and `watch`: to hear of what happens as it does."""

import asyncio
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, timedelta
from typing import Any, Final

import click

from queue_operator.cli import rendering
from queue_operator.cli.command import ExampleCommand
from queue_operator.cli.connection import INTERRUPTED, Remote, remote
from queue_operator.cli.values import Duration, JobId, Tag, tag_map
from queue_operator.client import AsyncQueueClient, JobEvent, JobStatus
from queue_operator.client.listening import LAST_ID
from queue_operator.client.models import FINISHED
from queue_operator.domain.errors import InvalidArgument, QueueError
from queue_operator.domain.views import Phase

_AT_ONCE: Final = 50
"""Streams of one command; further jobs are waited for when one of these has ended."""


@click.command(
    cls=ExampleCommand,
    examples=(
        "queue-operator wait 01a2202b-60ba-7527-8384-af65995ae3ce",
        "queue-operator wait extract-1 extract-2 --timeout 10m && echo done",
        "queue-operator list --state RUNNING -o ids | xargs queue-operator wait",
        "queue-operator wait nightly-report -o json | jq .result.output",
    ),
)
@click.argument("job_ids", nargs=-1, required=True, metavar="JOB_ID...", type=JobId())
@click.option("--timeout", type=Duration(), help="Give up after so long.")
@remote()
def wait(remote: Remote, job_ids: tuple[str, ...], timeout: timedelta | None) -> None:
    """Wait until jobs have ended, and print each with how it did; as JSON, each on a line.

    It hears of the end, and does not ask again and again. The exit code is 0 if all completed, 1
    if one ended otherwise, and 3 if one has not ended within --timeout.
    """
    wanted = tuple(dict.fromkeys(job_ids))
    timeout_s = None if timeout is None else timeout.total_seconds()
    try:
        ended = remote.run(lambda queue: _all(remote, queue, wanted, timeout_s))
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    if any(status.state is not Phase.COMPLETED for status in ended):
        sys.exit(1)


async def _all(
    remote: Remote, queue: AsyncQueueClient, job_ids: Sequence[str], timeout_s: float | None
) -> list[JobStatus]:
    room = asyncio.Semaphore(_AT_ONCE)
    until = None if timeout_s is None else asyncio.get_running_loop().time() + timeout_s

    async def one(job_id: str) -> JobStatus:
        async with room:
            left_s = None if until is None else max(until - asyncio.get_running_loop().time(), 0.0)
            try:
                status = await queue.wait(job_id, timeout_s=left_s, namespace=remote.namespace)
            except TimeoutError as error:
                state = str(error).rpartition(": ")[2]
                told = f"job {job_id!r} has not ended within {timeout_s:g} s: {state}"
                raise TimeoutError(told) from None
        if remote.output == "json":
            rendering.print_line(status)
        else:
            print(rendering.plain(f"{status.job_id} {status.state.value}"), flush=True)
        return status

    async def outcome(job_id: str) -> JobStatus | QueueError | TimeoutError:
        # The others are waited for all the same. Where nobody reads what is printed, none is.
        try:
            return await one(job_id)
        except (QueueError, TimeoutError) as error:
            return error

    done = await asyncio.gather(*map(outcome, job_ids))
    failed = [each for each in done if isinstance(each, Exception)]
    if failed:
        # What is wrong is told before what is only not over.
        raise min(failed, key=lambda error: isinstance(error, TimeoutError))
    return [each for each in done if isinstance(each, JobStatus)]


def _choice(values: Any) -> click.Choice[Any]:
    return click.Choice(list(values), case_sensitive=False)


@click.command(
    cls=ExampleCommand,
    examples=(
        "queue-operator watch --type send-email --state FAILED --state DEAD_LETTER",
        "queue-operator watch --tag team=growth -o json | jq -c '[.job_id, .status]'",
        "queue-operator watch nightly-report --timeout 1h",
    ),
)
@click.argument("job_id", required=False, type=JobId())
@click.option("-t", "--type", "types", multiple=True, help="Only jobs of this type, or these.")
@click.option(
    *("-s", "--state", "states"),
    type=_choice(Phase),
    multiple=True,
    help="Only what leads to this state, or these.",
)
@click.option("--tag", "tags", type=Tag(), multiple=True, help="All tags given must be there.")
@click.option("-f", "--follow", is_flag=True, help="With JOB_ID: go on when the job has ended.")
@click.option(
    "--after",
    metavar="POSITION",
    help="Go on after this event: its `position` in the JSON.",
)
@click.option("--timeout", type=Duration(), help="End after so long.")
@remote()
def watch(remote: Remote, job_id: str | None, timeout: timedelta | None, **given: Any) -> None:
    """Print what happens as it does: to JOB_ID until it has ended, or to all jobs of a filter.

    Each event is a line, as JSON a document of one line. Restarts of the server go unnoticed. With
    JOB_ID the exit code is 0 if the job completed, 1 if it ended otherwise, 3 if it has not ended
    within --timeout, and 130 after Ctrl-C, which is the usual end of a filter.
    """
    _check(job_id, given)
    options = {**given, "tags": tag_map(given["tags"]), "namespace": remote.namespace}
    timeout_s = None if timeout is None else timeout.total_seconds()

    async def print_all(queue: AsyncQueueClient) -> Phase | None:
        try:
            last, is_over = await _print(remote, queue.watch(job_id, **options), timeout_s)
        except InvalidArgument as error:
            if error.field != LAST_ID:
                raise
            told = "is no position of this server; `watch -o json` tells that of each event"
            raise InvalidArgument("--after", told) from None
        if job_id is not None and is_over and (last is None or not last.is_finished):
            # It ended before --after, or was deleted.
            return (await queue.get(job_id, namespace=remote.namespace)).state
        return None if last is None else last.status

    try:
        state = remote.run(print_all)
    except KeyboardInterrupt:
        sys.exit(0 if job_id is None else INTERRUPTED)
    if job_id is None:
        return
    if state not in FINISHED:
        within = "" if timeout_s is None else f" within {timeout_s:g} s"
        raise remote.not_ended(f"job {job_id!r} has not ended{within}")
    if state is not Phase.COMPLETED:
        sys.exit(1)


def _check(job_id: str | None, given: Mapping[str, Any]) -> None:
    if job_id is not None and (given["types"] or given["states"] or given["tags"]):
        raise click.UsageError("give JOB_ID or a filter, not both")
    if given["follow"] and job_id is None:
        raise click.UsageError("--follow is for JOB_ID")


async def _print(
    remote: Remote, events: AsyncIterator[JobEvent], timeout_s: float | None
) -> tuple[JobEvent | None, bool]:
    """The last one, and whether no more come; else the time is over."""
    last = None
    try:
        async with asyncio.timeout(timeout_s):
            async for last in events:
                if remote.output == "json":
                    rendering.print_line(last)
                else:
                    print(_line(last), flush=True)
    except TimeoutError:
        return last, False
    return last, True


def _line(event: JobEvent) -> str:
    when = "" if event.at is None else f"{event.at.astimezone(UTC):%Y-%m-%d %H:%M:%S.%f} "
    told = f"{when}{event.job_id} {event.type} {event.status.value} attempt {event.attempt}"
    return rendering.plain(f"{told} {event.event}".rstrip())
