"""Tag sets as a site with many kinds of work has them, and what its workers ask for."""

from collections.abc import Iterator
from itertools import cycle, islice
from typing import Final

REGIONS: Final = 4
SIZES: Final = 10
KINDS: Final = 5

SETS: Final = tuple(
    frozenset({f"region-{region}", f"size-{size}", f"kind-{kind}"})
    for region in range(REGIONS)
    for size in range(SIZES)
    for kind in range(KINDS)
)
"""200 different sets; which of them a job has goes by its number."""


def of_job(number: int) -> frozenset[str]:
    return SETS[number % len(SETS)]


def demands(claimers: int) -> list[Iterator[frozenset[str]]]:
    """What each claimer asks for, claim by claim.

    A quarter ask for anything and so for all sets, a quarter for a region (50 sets), a quarter
    for a region and a size (5 sets), a quarter for exactly one set. Those who ask for few move
    on with each claim, so that nothing runs dry.
    """
    return [_demand(n % 4, n // 4) for n in range(claimers)]


def _demand(kind: int, start: int) -> Iterator[frozenset[str]]:
    if kind == 0:
        return cycle([frozenset()])
    wanted = [
        [frozenset({f"region-{region}"}) for region in range(REGIONS)],
        [frozenset({f"region-{r}", f"size-{s}"}) for s in range(SIZES) for r in range(REGIONS)],
        list(SETS),
    ][kind - 1]
    if kind == 1:
        return cycle([wanted[start % REGIONS]])
    # From different places, so that two claimers of a kind do not ask for the same.
    return islice(cycle(wanted), start * len(wanted) // 3, None)
