"""`make mutants`: makes each listed mistake and reports whether the tests notice."""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from random import Random

from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from tests.conftest import KEEP, POSTGRES_FOLDER, POSTGRES_PORT

from mutants.listed import Mutant, faults, mutants, tests_of
from mutants.running import KILLED, Verdict, baseline, judge_all
from queue_operator.devcluster import Postgres

# Stores and rigs that need the server, and tests that do.
_SERVED = ("postgres", "grpc")
_SERVED_TESTS = "tests/integration/"


def main() -> int:
    parser = argparse.ArgumentParser(prog="mutants", description=__doc__)
    parser.add_argument("--sample", type=int, help="only so many, drawn at random")
    parser.add_argument("--seed", type=int, default=0, help="of the draw")
    parser.add_argument("--store", help="only those of one store")
    parser.add_argument("--output", choices=["table", "json"], default="table")
    options = parser.parse_args()
    listed = [one for one in mutants() if options.store in (None, one.store)]
    if options.sample is not None:
        listed = Random(options.seed).sample(listed, min(options.sample, len(listed)))  # noqa: S311
    console = Console(stderr=True)
    with _server(listed):
        wrong = faults(listed) or baseline(listed)
        for line in wrong:
            console.print(line, style="red", markup=False)
        verdicts = [] if wrong else _watched(listed, console)
    if options.output == "json":
        print(json.dumps([asdict(one) for one in verdicts], indent=2))
    else:
        _show(verdicts)
    return int(bool(wrong) or any(one.fate != KILLED for one in verdicts))


@contextmanager
def _server(listed: Sequence[Mutant]) -> Iterator[None]:
    """The Postgres of the tests, up for all runs together."""
    tests = [test for found in tests_of(list(listed)).values() for test in found]
    if not (
        any(one.store.startswith(_SERVED) for one in listed)
        or any(test.startswith(_SERVED_TESTS) for test in tests)
    ):
        yield
        return
    server = Postgres(POSTGRES_FOLDER, "127.0.0.1", POSTGRES_PORT)
    was_running = server.running()
    server.start()
    try:
        yield
    finally:
        if not (was_running or KEEP):
            server.kill()


def _watched(listed: Sequence[Mutant], console: Console) -> list[Verdict]:
    with Progress(console=console) as progress:
        task = progress.add_task("mutants", total=len(listed))
        return judge_all(listed, lambda _: progress.advance(task))


def _show(verdicts: Sequence[Verdict]) -> None:
    table = Table("promise", "store", "mistake in", "fate")
    for one in verdicts:
        mutant = one.mutant
        fate = one.fate if one.fate == KILLED else f"{one.fate}: {one.detail}"
        table.add_row(mutant.promise, mutant.store, mutant.file, fate)
    console = Console()
    console.print(table)
    counts = Counter(one.fate for one in verdicts)
    console.print(", ".join(f"{n} {fate}" for fate, n in sorted(counts.items())))


if __name__ == "__main__":
    sys.exit(main())
