"""Results as tables, one per scenario, each system beside ours."""

from collections.abc import Iterator, Sequence
from typing import Final

from rich.console import Console
from rich.table import Table

from bench import hours
from bench.comparison import PASS_LINES, reached
from bench.contenders import OURS
from bench.result import Result

COLUMNS: Final[Sequence[tuple[str, str, str]]] = (
    ("jobs/s", "jobs_per_s", ",.0f"),
    ("first 10 s", "first_window_jobs_per_s", ",.0f"),
    ("last 10 s", "last_window_jobs_per_s", ",.0f"),
    ("of free", "share_of_unpinned", ".2f"),
    ("claim p50 ms", "claim_p50_ms", ",.1f"),
    ("claim p99 ms", "claim_p99_ms", ",.1f"),
    ("of unpinned", "claim_p99_of_unpinned", ",.2f"),
    ("unavailable", "unavailable", ",.0f"),
    ("dead rows", "dead_rows_before", ",.0f"),
    ("of ordinary", "of_ordinary", ",.2f"),
    ("singles", "single_of_ordinary", ",.2f"),
    ("first claim ms", "first_claim_ms", ",.0f"),
    ("lanes left", "lanes_left", ",.0f"),
    ("MB waiting", "waiting_rss_mb", ",.0f"),
    ("cancel ms", "cancel_max_ms", ",.1f"),
    ("delete ms", "delete_max_ms", ",.1f"),
    ("refused ms", "refuse_max_ms", ",.1f"),
    ("cleanup ms", "cleanup_max_ms", ",.1f"),
    ("prune ms", "prune_max_ms", ",.1f"),
    ("of nothing", "prune_nothing_max_ms", ",.1f"),
    ("stats ms", "stats_max_ms", ",.1f"),
    ("get_job ms", "get_job_p50_ms", ",.2f"),
    ("pickup p50 ms", "pickup_p50_ms", ",.1f"),
    ("pickup p99 ms", "pickup_p99_ms", ",.1f"),
    ("core share", "idle_cpu_share", ".4f"),
    ("idle RSS MB", "idle_rss_mb", ",.0f"),
    ("statements/s", "idle_statements_per_s", ",.1f"),
    ("scrape ms", "scrape_p50_ms", ",.0f"),
    ("at most", "scrape_max_ms", ",.0f"),
    ("samples", "scrape_samples", ",.0f"),
    ("scraped RSS MB", "scrape_rss_mb", ",.0f"),
    ("stored of plain", "stored_of_plain", ".3f"),
    ("told of plain", "told_of_plain", ".3f"),
    ("server µs plain", "plain_server_us", ",.0f"),
    ("server µs told", "told_server_us", ",.0f"),
    ("told/s", "deliveries_per_s", ",.0f"),
    ("sender RSS MB", "sender_rss_mb", ",.0f"),
    ("of one session", "one_session_statements_per_s", ",.1f"),
    ("operator ms/job", "operator_cpu_s_per_1000", ",.3f"),
    ("workers", "worker_cpu_s_per_1000", ",.3f"),
    ("status p50 ms", "status_p50_ms", ",.1f"),
    ("status p99 ms", "status_p99_ms", ",.1f"),
    ("search p50 ms", "search_p50_ms", ",.1f"),
    ("search p99 ms", "search_p99_ms", ",.1f"),
    ("worst search p99 ms", "search_worst_p99_ms", ",.1f"),
    ("stats p50 ms", "stats_hour_p50_ms", ",.1f"),
    ("of a day", "stats_day_p50_ms", ",.1f"),
    ("at most ms", "rest_stats_max_ms", ",.1f"),
    ("MB before", "operator_rss_before_mb", ",.0f"),
    ("half way", "operator_rss_half_mb", ",.0f"),
    ("operator MB", "operator_rss_mb", ",.0f"),
    ("WAL B/job", "wal_bytes_per_job", ",.0f"),
    ("table B/job", "table_bytes_per_job", ",.0f"),
    ("CPU ms/job: it", "own_cpu_s_per_1000", ",.3f"),
    ("server", "server_cpu_s_per_1000", ",.3f"),
    ("RSS MB", "rss_mb", ",.0f"),
)
"""Heading, metric, format. A column that no system of a scenario has is left out."""


def show(results: Sequence[Result], console: Console) -> None:
    """Prints all scenarios, then the lines that our own figures should reach."""
    for scenario in dict.fromkeys(one.scenario for one in results):
        rows = [one for one in results if one.scenario == scenario]
        console.print(_table(scenario, rows))
    if found := hours.rows(results):
        console.print(_calls(found))
    for line in _lines(results):
        console.print(line, highlight=False)


def ratio(ours: Sequence[Result], other: Result) -> str:
    """Our rate over the other's."""
    for one in ours:
        if one is other:
            return ""
        if "jobs_per_s" in one.metrics and other.metrics.get("jobs_per_s"):
            return f"{one.metrics['jobs_per_s'] / other.metrics['jobs_per_s']:.2f}"
    return ""


def _table(scenario: str, rows: Sequence[Result]) -> Table:
    ours = [one for one in rows if one.system == OURS]
    table = Table(title=scenario, title_justify="left")
    table.add_column("system", no_wrap=True)
    columns = [column for column in COLUMNS if any(column[1] in one.metrics for one in rows)]
    for heading, _, _ in columns:
        table.add_column(heading, justify="right")
    if compared := len(rows) > len(ours):
        table.add_column("ours / it", justify="right")
    for one in rows:
        cells = [format(one.metrics[m], f) if m in one.metrics else "" for _, m, f in columns]
        table.add_row(one.system, *cells, *([ratio(ours, one)] if compared else []))
    return table


def _calls(rows: Sequence[Sequence[str]]) -> Table:
    table = Table(title="pinned_hour, in ms", title_justify="left")
    for place, heading in enumerate(hours.HEADINGS):
        table.add_column(heading, justify="right" if place else "left")
    for row in rows:
        table.add_row(*row)
    return table


def _lines(results: Sequence[Result]) -> Iterator[str]:
    for one in results:
        for (scenario, metric), (direction, bound) in PASS_LINES.items():
            if scenario == one.scenario and (passed := reached(one, metric)) is not None:
                mark = "[green]reached[/]" if passed else "[red]MISSED[/]"
                value = one.metrics[metric]
                yield f"{mark}  {scenario} {metric} {value:,.2f}, wanted {direction} {bound:g}"
