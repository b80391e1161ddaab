"""Who is measured, and with which settings: what to choose the best from, and the default."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from bench.peers import install
from bench.result import Setting
from bench.runner import System

OURS: Final = "queue-operator"
COPY: Final = "postgres copy"
EMPTY: Final = "empty endpoint"

Settings = Mapping[str, Setting]


_CALLERS: Final[Sequence[Settings]] = ({"submitters": 2}, {"submitters": 1})


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """One system. `trials` has the settings to choose from, by mode; the first have been best
    so far, and a full run tries all. `default` is how the system comes, measured beside that.
    """

    name: str
    system: System
    trials: Mapping[str, Sequence[Settings]]
    fixed: Settings = field(default_factory=dict)
    described: Settings = field(default_factory=dict)
    default: Settings | None = None


def ours(batch: int | None = None) -> Contender:
    """The product. With `batch`, only that many jobs per claim are tried."""
    batches = [batch] if batch else [1000, 500, 250, 2000]
    large = [batch] if batch else [1000, 500, 2000]
    flows = [*((size, 1, 1000) for size in large), (large[0], 2, 1000), (large[0], 1, 5000)]
    return _driven(
        OURS,
        "product",
        {
            "submit": _CALLERS,
            "burn_down": [{"batch": b, "pipelines": n} for b in batches for n in (1, 2)],
            "continuous": [
                {"batch": b, "pipelines": n, "submit_batch": submit} for b, n, submit in flows
            ],
        },
    )


def wide_row() -> Contender:
    """The plain alternative to our tables."""
    return _driven("one wide row", "wide_row", {})


def bare_copy() -> Contender:
    """The server's ceiling for submissions."""
    return _driven(COPY, "bare_copy", {"submit": _CALLERS})


def end_to_end() -> Contender:
    """The whole product: an operator and two workers, all of them processes of their own."""
    system = System(OURS, [sys.executable, "-m", "bench.programs.end_to_end"])
    return Contender(
        name=OURS,
        system=system,
        trials={"burn_down": [{"capacity": n} for n in (2000, 1000, 500)]},
    )


def idle_sessions() -> System:
    return System(OURS, [sys.executable, "-m", "bench.programs.idle_sessions"])


def scrape() -> System:
    return System(OURS, [sys.executable, "-m", "bench.programs.scrape"])


def webhooks() -> System:
    return System(OURS, [sys.executable, "-m", "bench.programs.webhooks"])


def rest_submit() -> Contender:
    """An operator that is called over REST."""
    return _rest(OURS, "product")


def empty_endpoint() -> Contender:
    """The ceiling of the framework that the REST server is made with."""
    return _rest(EMPTY, "empty")


def rest_reads() -> System:
    return System(OURS, [sys.executable, "-m", "bench.programs.rest_reads"])


def many_lanes() -> System:
    return System(OURS, [sys.executable, "-m", "bench.programs.many_lanes"])


def many_jobs() -> System:
    return System(OURS, [sys.executable, "-m", "bench.programs.many_jobs"])


def pinned_hour() -> System:
    return System(OURS, [sys.executable, "-m", "bench.programs.pinned_hour"])


def many_names() -> System:
    return System(OURS, [sys.executable, "-m", "bench.programs.many_names"])


def long_history() -> System:
    return System(OURS, [sys.executable, "-m", "bench.programs.long_history"])


def _rest(name: str, store: str) -> Contender:
    system = System(name, [sys.executable, "-m", "bench.programs.rest_submit"])
    return Contender(name=name, system=system, trials={"submit": [{}]}, fixed={"store": store})


def _driven(name: str, store: str, trials: Mapping[str, Sequence[Settings]]) -> Contender:
    system = System(name, [sys.executable, "-m", "bench.programs.drive"])
    return Contender(name=name, system=system, trials=trials, fixed={"store": store})


def _river() -> Contender:
    """Its documentation runs its own benchmark with 2,000 workers and these two intervals; the
    examples have 100 workers and no intervals.
    """
    working = [{"workers": n, "cooldown_ms": 2, "poll_ms": 20} for n in (2000, 500, 100)]
    return Contender(
        name="river",
        system=install.river(),
        described={"version": install.version("river")},
        trials={
            "submit": _CALLERS,
            "burn_down": working,
            "continuous": [*working[:2], {**working[0], "submit_batch": 1000}],
        },
        default={"workers": 100, "cooldown_ms": 0, "poll_ms": 0},
    )


def _pgqueuer() -> Contender:
    """Its own benchmark has five workers with batches of ten; larger ones are faster here."""
    working: list[Settings] = [
        {"workers": 2, "batch": 200},
        {"workers": 5, "batch": 10},
        {"workers": 2, "batch": 500},
    ]
    return Contender(
        name="pgqueuer",
        system=install.pgqueuer(),
        described={"version": install.version("pgqueuer"), "driver": "asyncpg"},
        trials={
            "submit": _CALLERS,
            "burn_down": working,
            "continuous": [working[2], working[0], {**working[0], "submit_batch": 1000}],
        },
        default={"workers": 1, "batch": 10},
    )


PEERS: Final[Mapping[str, Callable[[], Contender]]] = {"river": _river, "pgqueuer": _pgqueuer}
