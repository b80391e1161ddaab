"""`queue-operator logs`: what a job's handler logged."""

from collections.abc import Iterator
from datetime import UTC

import click

from queue_operator.cli import rendering
from queue_operator.cli.command import ExampleCommand
from queue_operator.cli.connection import Remote, remote
from queue_operator.cli.tailing import Tail, Wanted
from queue_operator.cli.values import JobId
from queue_operator.client import AsyncQueueClient, JobLog
from queue_operator.client.models import AttemptLog, LogLine
from queue_operator.domain.running import LOG_LINES, USUAL_LOG_LINES


@click.command(
    cls=ExampleCommand,
    examples=(
        "queue-operator logs 01a2202b-60ba-7527-8384-af65995ae3ce",
        "queue-operator logs nightly-report --follow",
        "queue-operator logs nightly-report --attempt 2 --lines 1000",
        "queue-operator logs nightly-report -o json | jq -r '.attempts[-1].lines[].message'",
    ),
)
@click.argument("job_id", type=JobId())
@click.option("--attempt", type=click.IntRange(1), help="Only of this attempt.")
@click.option(
    "--lines",
    type=click.IntRange(1, LOG_LINES),
    help=f"Most lines of an attempt, the newest.  [default: {USUAL_LOG_LINES}]",
)
@click.option(
    "-f",
    "--follow",
    is_flag=True,
    help="Print lines as they come, until the job has ended; as JSON, each on a line.",
)
@remote()
def logs(remote: Remote, job_id: str, attempt: int | None, lines: int | None, follow: bool) -> None:
    """Show what the handler of a job logged, by attempt; while it runs, and after."""
    if follow:
        _follow(remote, job_id, attempt, lines)
        return
    with remote.connected() as queue:
        told = queue.log(job_id, attempt=attempt, lines=lines, namespace=remote.namespace)
    if remote.output == "json":
        rendering.print_json(told)
    elif told.attempts:
        for line in _lines(told):
            print(line)
    else:
        rendering.note("no lines")


def _follow(remote: Remote, job_id: str, attempt: int | None, lines: int | None) -> None:
    show = _print_lines if remote.output == "json" else _print_news

    wanted = Wanted(job_id=job_id, attempt=attempt, lines=lines, namespace=remote.namespace)

    async def tail(queue: AsyncQueueClient) -> None:
        await Tail(queue, wanted, show).follow()

    try:
        remote.run(tail)
    except KeyboardInterrupt:
        return


def _print_lines(one: AttemptLog) -> None:
    for line in one.lines:
        rendering.print_line({"attempt": one.attempt, **rendering.fields_of(line)})


def _print_news(one: AttemptLog) -> None:
    if not one.continued:
        print(_head(one), flush=True)
    elif one.dropped:
        rendering.note(f"{rendering.count(one.dropped, 'line')} left out")
    for line in one.lines:
        print(_line(line), flush=True)


def _lines(told: JobLog) -> Iterator[str]:
    for one in told.attempts:
        yield _head(one)
        yield from map(_line, one.lines)


def _head(one: AttemptLog) -> str:
    left = rendering.count(one.dropped, "earlier line")
    missing = f", {left} left out" if one.dropped else ""
    return f"attempt {one.attempt}{missing}"


def _line(line: LogLine) -> str:
    fields = "".join(f" {name}={value}" for name, value in line.fields.items())
    told = rendering.plain(f"{line.level} {line.message}{fields}")
    return f"{line.at.astimezone(UTC):%Y-%m-%d %H:%M:%S.%f} {told}"
