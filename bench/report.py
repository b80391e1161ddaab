"""Figures as a table, each scenario's ratios to its last candidate."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from bench.scenarios import Figures


def show(figures: Sequence[Figures]) -> None:
    """Prints one table per scenario."""
    console = Console(width=100)
    for scenario in dict.fromkeys(one.scenario for one in figures):
        rows = [one for one in figures if one.scenario == scenario]
        console.print(_table(scenario, rows))


def _table(scenario: str, rows: Sequence[Figures]) -> Table:
    table = Table(title=scenario, title_justify="left")
    table.add_column("design")
    headings = ("jobs/s", "ratio", "first third", "last third", "WAL B/job", "claim p50 ms")
    for heading in (*headings, "p99 ms", "RSS MB"):
        table.add_column(heading, justify="right")
    base = rows[-1].jobs_per_s
    for one in rows:
        table.add_row(
            one.candidate,
            f"{one.jobs_per_s:,.0f}",
            f"{one.jobs_per_s / base:.2f}",
            f"{one.first_third_per_s:,.0f}",
            f"{one.last_third_per_s:,.0f}",
            f"{one.wal_bytes_per_job:,.0f}",
            f"{one.claim_p50_ms:.1f}",
            f"{one.claim_p99_ms:.1f}",
            f"{one.rss_mb:.0f}",
        )
    return table
