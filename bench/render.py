"""`python -m bench.render FILE`: writes a run's figures into docs/reference/performance.md."""

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Final

import click

from bench import hours
from bench.comparison import PASS_LINES, reached
from bench.contenders import OURS
from bench.result import Result, read
from bench.server import SETTINGS

PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "reference" / "performance.md"
BEGIN: Final = "<!-- measured: written by `python -m bench.render FILE` -->"
END: Final = "<!-- end of measured -->"

_COSTS: Final = (
    ("WAL, B/job", "wal_bytes_per_job", ",.0f"),
    ("tables, B/job", "table_bytes_per_job", ",.0f"),
    ("own CPU, ms/job", "own_cpu_s_per_1000", ".3f"),
    ("server CPU, ms/job", "server_cpu_s_per_1000", ".3f"),
    ("own memory, MB", "rss_mb", ",.0f"),
)
_FLOW: Final = (
    ("first window", "first_window_jobs_per_s", ",.0f"),
    ("last window", "last_window_jobs_per_s", ",.0f"),
    ("of unpinned", "share_of_unpinned", ".2f"),
)
_ELSEWHERE: Final = frozenset({"store", "version", "postgres", "cpus", *SETTINGS})
"""Settings that are the same everywhere, or say nothing to a reader."""

Columns = Sequence[tuple[str, str, str]]


@click.command()
@click.argument("file", type=click.Path(exists=True, path_type=Path))
@click.option("--page", type=click.Path(exists=True, path_type=Path), default=PAGE)
def main(file: Path, page: Path) -> None:
    """Replaces the measured part of the page by the run in FILE, as `--json` wrote it."""
    try:
        page.write_text(replaced(page.read_text(), block(read(file))))
    except ValueError as error:
        raise click.ClickException(str(error)) from None


def replaced(page: str, measured: str) -> str:
    """The page with what stands between the two marks exchanged."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"the page lacks the lines {BEGIN!r} and {END!r}")
    return f"{before}{BEGIN}\n{measured}\n{END}{after}"


def block(results: Sequence[Result]) -> str:
    """The whole measured part."""
    parts = [
        _machine(results),
        *_invalid(results),
        "### Against others",
        _against(results),
        "### Over time",
        _by_system(results, _FLOW),
        *_hours(results),
        "### Costs",
        _by_system(results, _COSTS),
        "### What we want to reach",
        _lines(results),
        "### Settings",
        _settings(results),
    ]
    return "\n\n".join(parts)


def _machine(results: Sequence[Result]) -> str:
    if not results:
        raise ValueError("the file holds no results")
    settings = results[0].settings
    server = ", ".join(f"`{k}` {settings[k]}" for k in SETTINGS)
    return (
        f"PostgreSQL {settings['postgres']} with {server}, and everything else on the same "
        f"{settings['cpus']} cores."
    )


def _invalid(results: Sequence[Result]) -> Iterator[str]:
    if any(not result.metrics.get("valid", 1) for result in results):
        yield "**This run is not valid**: see what `make bench` said when it was made."


def _hours(results: Sequence[Result]) -> Iterator[str]:
    if found := hours.rows(results):
        yield "### While old rows are kept, in ms"
        yield _table(hours.HEADINGS, found, numbers=set(range(1, len(hours.HEADINGS))))


def _against(results: Sequence[Result]) -> str:
    rows = []
    for scenario, same in _by_scenario(results).items():
        ours = next((one for one in same if one.system == OURS), None)
        for other in same:
            if ours is None or other is ours:
                continue
            us, it = ours.metrics["jobs_per_s"], other.metrics["jobs_per_s"]
            rows.append((scenario, f"{us:,.0f}", other.system, f"{it:,.0f}", f"{us / it:.2f}"))
    return _table(
        ("scenario", "ours, jobs/s", "peer", "peer, jobs/s", "ratio"), rows, numbers={1, 3, 4}
    )


def _by_system(results: Sequence[Result], columns: Columns) -> str:
    rows = []
    for one in results:
        cells = [format(one.metrics[m], f) if m in one.metrics else "" for _, m, f in columns]
        if any(cells):
            rows.append((one.scenario, one.system, *cells))
    headings = ("scenario", "system", *(heading for heading, _, _ in columns))
    return _table(headings, rows, numbers=set(range(2, len(headings))))


def _lines(results: Sequence[Result]) -> str:
    rows = []
    for one in results:
        for (scenario, metric), (direction, bound) in PASS_LINES.items():
            if scenario == one.scenario and (passed := reached(one, metric)) is not None:
                value = f"{one.metrics[metric]:,.2f}"
                verdict = "yes" if passed else "**no**"
                rows.append((scenario, f"`{metric}`", value, f"{direction} {bound:g}", verdict))
    return _table(("scenario", "figure", "ours", "wanted", "reached"), rows, numbers={2})


def _settings(results: Sequence[Result]) -> str:
    rows = []
    for one in results:
        shown = [key for key in one.settings if key not in _ELSEWHERE]
        text = ", ".join(f"{key} {_plain(one.settings[key])}" for key in shown)
        system = " ".join(filter(None, (one.system, str(one.settings.get("version", "")))))
        rows.append((one.scenario, system, text))
    return _table(("scenario", "system", "settings"), rows)


def _plain(value: object) -> str:
    return f"{value:,g}" if isinstance(value, float) else str(value)


def _by_scenario(results: Sequence[Result]) -> dict[str, list[Result]]:
    grouped: dict[str, list[Result]] = {}
    for one in results:
        grouped.setdefault(one.scenario, []).append(one)
    return grouped


def _table(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    numbers: Collection[int] = (),
) -> str:
    rule = ["--:" if place in numbers else "---" for place in range(len(headings))]
    return "\n".join("| " + " | ".join(row) + " |" for row in (headings, rule, *rows))


if __name__ == "__main__":
    main()
