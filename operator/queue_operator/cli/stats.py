"""`queue-operator stats` and `top`: how the queue is doing."""

import sys
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from queue_operator.backends.statistics import Breakdown
from queue_operator.cli import rendering, verdicts
from queue_operator.cli.command import ExampleCommand
from queue_operator.cli.connection import Remote, remote
from queue_operator.cli.values import Duration
from queue_operator.client import Pause, QueueClient, QueueStats, RetryPolicy
from queue_operator.client.models import Counts, Verdict
from queue_operator.domain.errors import Unavailable

_MOST_TYPES: Final = 30


@click.command(
    cls=ExampleCommand,
    examples=(
        "queue-operator stats",
        "queue-operator stats --by type --by priority --range 15m",
        "queue-operator stats -o json | jq .failure_rate",
    ),
)
@click.option(
    "--by",
    "breakdown_by",
    type=click.Choice(list(Breakdown), case_sensitive=False),
    multiple=True,
    help="Count by type, priority or state as well; may be repeated.",
)
@click.option("--range", "time_range", type=Duration(), help="Look back so far.  [default: 1h]")
@remote()
def stats(
    remote: Remote, breakdown_by: tuple[Breakdown, ...], time_range: timedelta | None
) -> None:
    """Count jobs, and show rates and latencies of the last hour."""
    with remote.connected() as queue:
        told = queue.stats(
            breakdown_by=breakdown_by, time_range=time_range, namespace=remote.namespace
        )
    if remote.output == "json":
        rendering.print_json(told)
    else:
        rendering.show(*_overview(told), *_breakdowns(told))


def _overview(told: QueueStats) -> list[RenderableType]:
    window = rendering.duration(told.until - told.since)
    counts = rendering.facts(
        [
            (
                "waiting",
                f"{told.scheduled:,} ready, {told.delayed:,} delayed, "
                f"{told.pending:,} for other jobs",
            ),
            ("running", f"{told.running:,}"),
            (
                f"in {window}",
                f"{told.completed:,} completed, {told.failed:,} failed, "
                f"{told.dead_letter:,} dead letter",
            ),
            (
                "per second",
                f"{rendering.number(told.submission_rate)} submitted, "
                f"{rendering.number(told.completion_rate)} completed, "
                f"{rendering.number(told.failure_rate)} failed",
            ),
        ]
    )
    made = rendering.table("LATENCY", "P50#", "P90#", "P99#", "MAX#")
    for name, found in (("in queue", told.queue_latency), ("execution", told.execution_time)):
        times = (found.p50, found.p90, found.p99, found.max)
        made.add_row(name, *(rendering.duration(one) for one in times))
    return [counts, Text(), made]


def _breakdowns(told: QueueStats) -> list[RenderableType]:
    parts: list[RenderableType] = []
    for title, found in (
        ("TYPE", told.by_type),
        ("PRIORITY", told.by_priority),
        ("STATE", told.by_state),
    ):
        if found is not None:
            parts += [Text(), _counted(title, found, told.until - told.since)]
    return parts


def _counted(title: str, found: Mapping[str, Counts], window: timedelta) -> RenderableType:
    made = rendering.table(
        *(title, "WAITING#", "RUNNING#", "COMPLETED#", "FAILED#", "DEAD#", "CANCELLED#"),
        *("DONE/S#", "FAILED/S#"),
        expendable=("FAILED/S", "DONE/S", "CANCELLED"),
        elastic=(title,),
    )
    seconds = max(window.total_seconds(), 1.0)
    ordered = sorted(found.items(), key=_busiest)
    for name, counts in ordered[:_MOST_TYPES]:
        made.add_row(
            rendering.plain(name),
            *(f"{n:,}" for n in (counts.pending, counts.running, counts.completed)),
            *(
                Text(f"{n:,}", style="red" if n else "")
                for n in (counts.failed, counts.dead_letter)
            ),
            f"{counts.cancelled:,}",
            rendering.number(counts.completed / seconds),
            rendering.number((counts.failed + counts.dead_letter) / seconds),
        )
    if len(ordered) > _MOST_TYPES:
        made.add_row(f"{len(ordered) - _MOST_TYPES} others")
    return made


def _busiest(item: tuple[str, Counts]) -> tuple[int, int, str]:
    name, counts = item
    ended = counts.completed + counts.failed + counts.dead_letter + counts.cancelled
    return -(counts.pending + counts.running), -ended, name


@click.command(
    cls=ExampleCommand,
    examples=(
        "queue-operator top --namespace shop",
        "queue-operator top --interval 10s --range 1h",
        "queue-operator top --once",
        "queue-operator top -o json --count 30 --interval 1s > samples.jsonl",
    ),
)
@click.option(
    "--interval", type=Duration(), default="2s", show_default=True, help="Between two looks."
)
@click.option(
    "--range", "time_range", type=Duration(), default="5m", show_default=True, help="Of the rates."
)
@click.option("--count", type=click.IntRange(1), help="Look so often.  [default: until Ctrl-C]")
@click.option("--once", is_flag=True, help="Look once.")
@remote()
def top(
    remote: Remote, interval: timedelta, time_range: timedelta, count: int | None, once: bool
) -> None:
    """Watch the queue: how it does in a sentence, counts, rates and latencies by type.

    Into a pipe it looks once unless --count is given; as JSON each look is one line.
    """
    if once and count is not None:
        raise click.UsageError("give --once or --count, not both")
    if once or (count is None and not sys.stdout.isatty()):
        count = 1
    pause_s = max(interval.total_seconds(), 0.1)
    # An outage is a line of the picture, not of the screen around it.
    with remote.connected(RetryPolicy()) as queue:
        view = _View(remote, queue, time_range)
        if remote.output == "json":
            _repeat(count, pause_s, lambda: rendering.print_line(view.record()))
            return
        _live(view, count, pause_s, rendering.console())


def _live(view: "_View", count: int | None, pause_s: float, console: Console) -> None:
    if not console.is_terminal:
        _repeat(count, pause_s, lambda: rendering.show(view.picture()))
        return
    with Live(console=console, auto_refresh=False, screen=True) as live:
        _repeat(count, pause_s, lambda: live.update(view.picture(), refresh=True))


def _repeat(
    count: int | None,
    pause_s: float,
    look: Callable[[], object],
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Looks `count` times, or until somebody presses Ctrl-C."""
    done = 0
    try:
        while True:
            look()
            done += 1
            if done == count:
                return
            sleep(pause_s)
    except KeyboardInterrupt:
        return


class _View:
    """What is seen at each look. A server that is away is a line of the picture."""

    def __init__(self, remote: Remote, queue: QueueClient, time_range: timedelta) -> None:
        self._remote = remote
        self._queue = queue
        self._range = time_range
        self._last: list[RenderableType] = []

    def sample(self) -> QueueStats:
        """The numbers."""
        return self._queue.stats(
            breakdown_by=(Breakdown.TYPE,),
            time_range=self._range,
            namespace=self._remote.namespace,
        )

    def verdict(self) -> Verdict:
        """The sentence, and its causes."""
        return self._queue.verdict(namespace=self._remote.namespace)

    def record(self) -> dict[str, Any]:
        """The numbers and the verdict, for programs."""
        told = rendering.fields_of(self.sample())
        return {**told, "verdict": rendering.fields_of(self.verdict())}

    def picture(self) -> RenderableType:
        """The numbers as tables; the last ones while there are no new ones."""
        now = f"{datetime.now(UTC):%H:%M:%S} UTC"
        where = self._remote.namespace or "own namespace"
        head = Text(rendering.plain(f"{self._remote.url}  {where}  {now}"), style="bold")
        try:
            told, verdict = self.sample(), self.verdict()
            pauses = self._queue.pauses(namespace=self._remote.namespace)
        except Unavailable as error:
            if not self._last:
                raise
            return Group(head, Text(rendering.plain(error), style="red"), Text(), *self._last)
        self._last = [
            verdicts.sentence(verdict),
            Text(),
            *_overview(told),
            *_paused(pauses),
            *_breakdowns(told),
        ]
        return Group(head, Text(), *self._last)


def _paused(pauses: tuple[Pause, ...]) -> list[RenderableType]:
    if not pauses:
        return []
    names = ", ".join(one.type or "everything" for one in pauses)
    return [Text(), Text(rendering.plain(f"paused: {names}"), style="yellow")]
