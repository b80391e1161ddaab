"""What the metrics about the stored jobs are made of, in a store that several processes share."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, runtime_checkable

OTHER: Final = "other"
"""A namespace or type that is not shown by its name."""

Pair = tuple[str, str]
"""A namespace and a type, as they are shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Naming:
    """How many pairs of namespace and type are shown by name, and of how many namespaces the sum of
    the others; a name that is not used for `unused_s` is given back.
    """

    max_pairs: int
    max_namespaces: int
    unused_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Buckets:
    """Upper bounds in seconds, without the last one."""

    wait: Sequence[float]
    run: Sequence[float]


@dataclass(slots=True)
class Spread:
    """How many took how long: a count for each bucket, the last one for what is above all."""

    counts: list[int]
    total_us: int = 0

    def note(self, bucket: int, n: int, us: int) -> None:
        self.counts[bucket] += n
        self.total_us += us

    def add(self, other: "Spread") -> None:
        for bucket, n in enumerate(other.counts):
            self.counts[bucket] += n
        self.total_us += other.total_us


@dataclass(slots=True)
class Counted:
    """What happened. Attempts are told apart by the event that ended them and the category of their
    error, "" for none.
    """

    submitted: Counter[Pair] = field(default_factory=Counter)
    attempts: Counter[tuple[str, str, str, str]] = field(default_factory=Counter)
    finished: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    waits: dict[Pair, Spread] = field(default_factory=dict)
    runs: dict[Pair, Spread] = field(default_factory=dict)

    def add(self, other: "Counted") -> None:
        self.submitted.update(other.submitted)
        self.attempts.update(other.attempts)
        self.finished.update(other.finished)
        for mine, theirs in ((self.waits, other.waits), (self.runs, other.runs)):
            for pair, spread in theirs.items():
                spread_of(mine, pair, len(spread.counts)).add(spread)


def spread_of(spreads: dict[Pair, Spread], pair: Pair, buckets: int) -> Spread:
    """That of a pair, empty where there is none yet."""
    spread = spreads.get(pair)
    if spread is None:
        spread = spreads[pair] = Spread([0] * buckets)
    return spread


@dataclass(frozen=True, slots=True, kw_only=True)
class Stock:
    """How many jobs there are, by the pairs that are shown, and by state; how old in seconds the
    oldest is that could run now, for pairs that have one; `unnamed` pairs are shown together.
    `needed_slots`, by namespace and pool ("" for none), would run at once all that runs or could.
    `names` are all that are shown by name, with OTHER as type for the sum of a namespace's others.
    """

    names: frozenset[Pair] = frozenset()
    jobs: Mapping[tuple[str, str, str], int] = field(default_factory=dict)
    oldest_age_s: Mapping[Pair, float] = field(default_factory=dict)
    needed_slots: Mapping[tuple[str, str], int] = field(default_factory=dict)
    waiting_lanes: int | None = None
    unnamed: int = 0


def shown(pair: Pair, names: frozenset[Pair]) -> Pair:
    """How a namespace and a type are shown."""
    if pair in names:
        return pair
    together = pair[0], OTHER
    return together if together in names else (OTHER, OTHER)


@runtime_checkable
class Leadership(Protocol):
    """One of those who share a store has the turn to tell of it."""

    async def lead(self, holder: str, ttl_s: float) -> bool:
        """Takes the turn, or keeps it for so long; whether `holder` has it now."""
        ...

    async def resign(self, holder: str) -> None:
        """Gives the turn back, if it is the holder's."""
        ...


@runtime_checkable
class Figures(Leadership, Protocol):
    """What the holder of the turn tells. Each thing that happened is counted once, by whoever has
    the turn then.
    """

    async def stock(self, naming: Naming) -> Stock: ...

    async def names(self) -> frozenset[Pair]:
        """Those of the stock, for whoever has not the turn."""
        ...

    async def count(self, holder: str, naming: Naming, buckets: Buckets) -> Counted:
        """What happened since somebody counted last; nothing where it is not the holder's turn.
        What was counted when a call fails is in the answer of the next.
        """
        ...

    async def lag_s(self) -> float:
        """How old the oldest is that nobody has counted yet, 0 for none."""
        ...
