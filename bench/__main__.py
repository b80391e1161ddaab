"""`python -m bench`: measures the storage, the whole product, and other queues, prints ratios."""

import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import click
from rich.console import Console

from bench.board import Board
from bench.cells import CELLS, GROUPS, QUICK, Measuring, Scale
from bench.comparison import add_ratios
from bench.contenders import PEERS, Contender, ours
from bench.peers.install import PeerMissing
from bench.programs.sample import SAMPLE
from bench.result import write
from bench.runner import ProgramFailed
from bench.server import own_server
from bench.table import show
from queue_operator.devcluster import DevClusterError, Purpose, ensure, progress_for

_Command = TypeVar("_Command", bound=Callable[..., Any])
_SCENARIOS = [*GROUPS, *CELLS]
_PEERS = [*PEERS, "none", "all"]


def _help(name: str, text: str) -> str:
    full, quick = getattr(Scale(), name), getattr(QUICK, name)
    return f"{text}  [default: {full:,.0f}; quick: {quick:,.0f}]"


def _number(option: str, name: str, text: str, type_: type = int) -> Callable[[_Command], _Command]:
    decorate: Callable[[_Command], _Command] = click.option(
        option, name, type=type_, help=_help(name, text)
    )
    return decorate


@click.command(context_settings={"max_content_width": 100})
@click.option(
    "--scenario",
    "scenarios",
    multiple=True,
    type=click.Choice(_SCENARIOS),
    default=("storage",),
    show_default=True,
    help="What to measure; repeatable. `storage`, `whole`, `rest` and `lasting` are groups.",
)
@click.option(
    "--peer",
    "peers",
    multiple=True,
    type=click.Choice(_PEERS),
    default=("all",),
    show_default=True,
    help="Which other queues to measure in the same run; repeatable.",
)
@click.option("--json", "file", type=click.Path(path_type=Path), help="Write all figures here.")
@click.option("--quick", is_flag=True, help="Little of everything, for a look in three minutes.")
@_number("--jobs", "jobs", "Jobs of submit and burn_down.")
@_number("--seconds", "seconds", "Length of a continuous run.", float)
@_number("--depth", "depth", "Jobs kept waiting in it.")
@_number("--repeats", "repeats", "Runs of submit and burn_down; the median counts.")
@_number("--payload", "payload", "Bytes per payload.")
@_number("--lane-jobs", "lane_jobs", "Backlog of many_lanes.")
@_number("--whole-jobs", "whole_jobs", "Backlog of end_to_end.")
@_number("--pickup-rate", "pickup_rate", "Submissions per second of pickup.")
@_number("--sessions", "sessions", "Workers of idle_sessions.")
@_number("--stats-jobs", "stats_jobs", f"Jobs stored in stats, a multiple of {SAMPLE:,}.")
@_number("--search-jobs", "search_jobs", f"Jobs stored in rest_search, a multiple of {SAMPLE:,}.")
@_number("--rest-jobs", "rest_jobs", "Jobs of rest_batches.")
@_number("--hour-seconds", "hour_seconds", "Length of pinned_hour.", float)
@_number("--free-seconds", "free_seconds", "Of the same unpinned, at most.", float)
@_number("--burn-seconds", "burn_seconds", "How long history is made in it first.", float)
@_number("--burn-jobs", "burn_jobs", "Jobs of that history; 0: as many as go through.")
@_number("--names", "names", "Lanes that many_names uses.")
@_number("--names-waiting", "names_waiting", "Of these, lanes that wait at a time.")
@_number("--history-jobs", "history_jobs", f"Ended jobs of long_history, a multiple of {SAMPLE:,}.")
@click.option("--batch", type=int, help="Jobs per claim.  [default: the best of several]")
def main(
    scenarios: Sequence[str],
    peers: Sequence[str],
    file: Path | None,
    quick: bool,
    **numbers: Any,
) -> None:
    """Measures the storage, or the whole product, on an embedded PostgreSQL of its own, and other
    queues beside it on the same server, each in turn.

    The figures are worth something only on a machine that does nothing else. A full run with
    both peers takes about a quarter of an hour. The exit code is 1 when a job was lost or done
    twice. docs/reference/performance.md says what each scenario does.
    """
    # As an interrupt does it: the server and the programs end with us.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    given = {name: value for name, value in numbers.items() if value is not None}
    scale = replace(QUICK if quick else Scale(), **given)
    for option in ("stats_jobs", "search_jobs", "history_jobs"):
        if getattr(scale, option) % SAMPLE:
            hint = f"--{option.replace('_', '-')}"
            raise click.BadParameter(f"must be a multiple of {SAMPLE}", param_hint=hint)
    cells = dict.fromkeys(cell for name in scenarios for cell in GROUPS.get(name, (name,)))
    try:
        ensure(Purpose.BENCH, progress_for(sys.stderr))
        measuring = _measure(list(cells), _contenders(peers), scale)
    except (PeerMissing, ProgramFailed, DevClusterError) as error:
        raise click.ClickException(str(error)) from None
    report(measuring, file)


def _contenders(peers: Sequence[str]) -> list[Contender]:
    if "none" in peers and len(set(peers)) > 1:
        raise click.BadParameter("`none` stands alone", param_hint="--peer")
    chosen = PEERS if "all" in peers else [name for name in PEERS if name in peers]
    return [PEERS[name]() for name in chosen]


def _measure(cells: Sequence[str], peers: Sequence[Contender], scale: Scale) -> Measuring:
    with own_server() as server, Board(len(cells)) as board:
        measuring = Measuring(server, scale, ours(scale.batch), peers, board)
        for name in cells:
            CELLS[name](measuring)
            board.cell_done()
    return measuring


def report(measuring: Measuring, file: Path | None) -> None:
    """Prints and writes the results. Exits when a job was lost or done twice."""
    add_ratios(measuring.results)
    problems = [*measuring.problems, *measuring.wrong_ledgers]
    for result in measuring.results:
        result.metrics["valid"] = int(not problems)
    show(measuring.results, Console(width=None if sys.stdout.isatty() else 160))
    if file is not None:
        write(file, measuring.results)
    for problem in problems:
        click.secho(f"INVALID RUN: {problem}", fg="red", bold=True, err=True)
    if measuring.wrong_ledgers:
        sys.exit(1)


if __name__ == "__main__":
    main()
