"""`queue-operator pipeline`: the event log to a lake and hourly roll-ups."""

import dataclasses
import json
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from typing import Any, Final

import click
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from queue_operator.cli.command import CommandGroup
from queue_operator.cli.environment import read_settings
from queue_operator.cli.rendering import plain
from queue_operator.domain.errors import QueueError
from queue_operator.pipeline.classes import prefetch_classes
from queue_operator.pipeline.jobs import PipelineReport, Say, latest_rollup, run_pipeline
from queue_operator.pipeline.session import prefetch_jars

# A row has one of the two: claims were waited for, outcomes ended an execution.
_MEASURES: Final = {"wait": "queue_latency", "run": "execution"}
_FIGURES: Final = ("p50", "p90", "p99", "max")
_PIPE_WIDTH: Final = 160
_US_PER_MS: Final = 1_000
_US_PER_S: Final = 1_000_000


@click.group(cls=CommandGroup)
def pipeline() -> None:
    """Takes the events of the jobs to a Parquet lake and hourly roll-ups, with Spark."""


@pipeline.command()
@click.option("--dsn", help="Address of the database; default: QUEUE_OPERATOR_DATABASE__DSN.")
@click.option("--lake", required=True, help="Folder, or URI such as s3a://…, of the lake.")
@click.option("--master", default="local[2]", show_default=True, help="Where Spark runs.")
@click.option("--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
@click.option(
    "--rows", type=click.IntRange(min=1), default=40, show_default=True, help="Roll-ups to print."
)
def run(dsn: str | None, lake: str, master: str, output: str, rows: int) -> None:
    """Read what is new, roll up the hours it touches, print the newest roll-ups."""
    address = dsn or read_settings().database.dsn.get_secret_value()
    console = Console(stderr=True)
    try:
        with _progress(console) as say:
            report = run_pipeline(address, lake, master=master, say=say)
            rollup = latest_rollup(address, rows)
    except QueueError as error:
        raise click.ClickException(str(error)) from error
    if output == "json":
        click.echo(json.dumps(_document(report, rollup), default=_plain))
    else:
        _print_rollup(rollup)
        console.print(_summary(report), highlight=False)


@pipeline.command()
def jars() -> None:
    """Fetch the JDBC driver and keep Spark's classes ready.

    Later runs then need no network and start in about half the time.
    """
    try:
        click.echo(prefetch_jars())
        click.echo(prefetch_classes())
    except QueueError as error:
        raise click.ClickException(str(error)) from error


def _progress(console: Console) -> AbstractContextManager[Say]:
    """A spinner on a terminal, else a line for each step."""
    if not console.is_terminal:
        return nullcontext(lambda text: console.print(text, highlight=False))
    return _Spinner(console)


class _Spinner(AbstractContextManager[Say]):
    def __init__(self, console: Console) -> None:
        self._status = console.status("starting")

    def __enter__(self) -> Say:
        self._status.start()
        return self._status.update

    def __exit__(self, *_: object) -> None:
        self._status.stop()


def _document(report: PipelineReport, rollup: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {"report": dataclasses.asdict(report), "rollup": rollup}


def _plain(value: object) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} has no JSON form here")


def _print_rollup(rollup: Sequence[dict[str, Any]]) -> None:
    table = Table(
        title="Jobs by hour (UTC)", box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True
    )
    for name in ("hour", "namespace", "type", "state"):
        table.add_column(name, overflow="fold")
    for name in ("jobs", "per s", "of", *_FIGURES):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rollup:
        table.add_row(*_cells(row))
    # A pipe has no width to fit into.
    Console(width=None if sys.stdout.isatty() else _PIPE_WIDTH).print(table)


def _cells(row: dict[str, Any]) -> list[str]:
    return [
        f"{row['hour']:%Y-%m-%d %H:%M}",
        *(escape(plain(row[name])) for name in ("namespace", "type", "state")),
        str(row["transitions"]),
        f"{row['rate_per_s']:.3g}",
        *_measured(row),
    ]


def _measured(row: dict[str, Any]) -> list[str]:
    for name, prefix in _MEASURES.items():
        if row[f"{prefix}_max_us"] is not None:
            return [name, *(_duration(row[f"{prefix}_{figure}_us"]) for figure in _FIGURES)]
    return []


def _duration(value_us: int) -> str:
    if value_us < _US_PER_S:
        return f"{value_us / _US_PER_MS:.1f} ms"
    return f"{value_us / _US_PER_S:,.2f} s"


def _summary(report: PipelineReport) -> str:
    total_s = sum(report.seconds.values())
    return (
        f"{report.events} statements, {report.bronze_rows} transitions, {len(report.hours)} hours, "
        f"{report.rollup_rows} roll-ups in {total_s:.1f} s (generation {report.generation})"
    )
