"""`python -m bench`: measures each design in each scenario and prints ratios."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Any

import click

from bench.candidates import Candidate
from bench.report import show
from bench.scenarios import Figures, Load, burn_down, steady
from bench.separate_rows import SeparateRows
from bench.server import fresh_database, own_server
from bench.wide_row import WideRow

CANDIDATES: tuple[type[Candidate], ...] = (SeparateRows, WideRow)


async def measure(admin_dsn: str, load: Load, seconds: float) -> list[Figures]:
    """Each candidate in each scenario, each time on an empty database."""
    scenarios: list[Callable[[Candidate, str], Awaitable[Figures]]] = [
        lambda store, dsn: burn_down(store, dsn, load),
        lambda store, dsn: steady(store, dsn, load, seconds),
        lambda store, dsn: steady(store, dsn, load, seconds, pinned=True),
    ]
    figures = []
    for scenario in scenarios:
        for candidate in CANDIDATES:
            with fresh_database(admin_dsn) as dsn:
                store = await candidate.open(dsn)
                try:
                    figures.append(await scenario(store, dsn))
                finally:
                    await store.close()
    return figures


@click.command()
@click.option("--jobs", default=30_000, show_default=True, help="Jobs of the burn-down.")
@click.option("--batch", default=500, show_default=True, help="Jobs per claim.")
@click.option("--payload", default=200, show_default=True, help="Bytes per payload.")
@click.option("--seconds", default=5.0, show_default=True, help="Length of the steady scenario.")
@click.option("--depth", default=5_000, show_default=True, help="Jobs kept waiting in it.")
@click.option("--output", type=click.Choice(["table", "json"]), default="table")
def main(output: str, seconds: float, **load: Any) -> None:
    """Measures the storage against a plain table on an embedded PostgreSQL of its own."""
    with own_server() as admin_dsn:
        figures = asyncio.run(measure(admin_dsn, Load(**load), seconds))
    if output == "json":
        click.echo(json.dumps([asdict(one) for one in figures], indent=2))
    else:
        show(figures)


if __name__ == "__main__":
    main()
