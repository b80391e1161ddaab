"""Which faults strike when: drawn from a seed, so that a run can be had again."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Fault(StrEnum):
    """What can strike. Each is told of with its target and, where it lasts, for how long."""

    KILL_WORKER = "SIGKILL to a worker"
    FREEZE_WORKER = "SIGSTOP, then SIGCONT, to a worker"
    DRAIN_WORKER = "SIGTERM to a worker"
    KILL_OPERATOR = "SIGKILL to an operator"
    FREEZE_OPERATOR = "SIGSTOP, then SIGCONT, to an operator"
    CUT_WORKER = "a worker's connection is cut"
    DELAY_WORKER = "a worker's connection is slow"
    HALF_OPEN_WORKER = "a worker's connection is half open"
    CUT_CLIENTS = "the clients' connections are cut"
    CUT_STORE = "an operator's connections to Postgres are cut"
    DELAY_STORE = "an operator's connections to Postgres are slow"
    HALF_OPEN_STORE = "an operator's connections to Postgres are half open"
    TERMINATE_BACKENDS = "pg_terminate_backend for some connections"
    RESTART_POSTGRES = "an immediate restart of Postgres"
    API_UNAVAILABLE = "the API server answers 503"
    API_OVERLOADED = "the API server answers 429"
    API_LEADER = "the API server's store has a new leader"
    API_EXPIRED = "lists of the API server cannot go on"
    API_BROKEN_WATCH = "watches of the API server hold an error"
    API_CUT = "connections to the API server are cut"
    API_AWAY = "nobody answers for the API server"


WORKER_ONLY: Final = (Fault.KILL_WORKER, Fault.FREEZE_WORKER, Fault.DRAIN_WORKER)
API: Final = (
    Fault.API_UNAVAILABLE,
    Fault.API_OVERLOADED,
    Fault.API_LEADER,
    Fault.API_EXPIRED,
    Fault.API_BROKEN_WATCH,
    Fault.API_CUT,
    Fault.API_AWAY,
)
OTHERS: Final = tuple(fault for fault in Fault if fault not in API)
LASTING: Final = {
    **dict.fromkeys(API, (0.5, 2.0)),
    Fault.FREEZE_WORKER: (1.0, 6.0),
    Fault.FREEZE_OPERATOR: (0.5, 5.0),
    Fault.DELAY_WORKER: (1.0, 4.0),
    Fault.DELAY_STORE: (1.0, 3.0),
}
"""How long each may last, in seconds; others are over at once."""

ABSENCE: Final = (1 / 12, 1 / 8)
"""How long the API server may be away, as a part of the run: of five minutes half a minute."""
PAUSE_S: Final = (1.2, 3.2)
API_PAUSE_S: Final = (0.3, 1.2)
SLOWNESS_S: Final = (0.05, 0.4)


@dataclass(frozen=True, slots=True)
class Strike:
    """`target` picks one of whatever the fault strikes, and `slowness_s` is how slow it gets."""

    at_s: float
    fault: Fault
    target: int
    lasts_s: float = 0.0
    slowness_s: float = 0.0

    def __str__(self) -> str:
        lasts = f" for {self.lasts_s:.1f} s" if self.lasts_s else ""
        return f"{self.at_s:6.1f} s  {self.fault}{lasts} (target {self.target})"


def only_api_s(seconds: float) -> float:
    """How long nothing but the API server fails, at the beginning of a run."""
    return seconds / 6


def plan(seed: int, seconds: float) -> list[Strike]:
    """The strikes of a run. The API server fails from its beginning on, at first alone; then, until
    a third of it is over, workers are struck as well, and after that everything. Every kind of
    fault strikes once before one strikes again.
    """
    rng = random.Random(seed)  # noqa: S311
    alone_s, only_workers_s = only_api_s(seconds), seconds / 3
    strikes = [
        *_of_api(rng, seconds),
        *_phase(rng, alone_s, only_workers_s, WORKER_ONLY),
        *_phase(rng, only_workers_s, seconds, OTHERS),
    ]
    return sorted(strikes, key=lambda strike: strike.at_s)


def _of_api(rng: random.Random, until_s: float) -> Iterator[Strike]:
    """One after the other: an API server has one fault at a time."""
    away = ABSENCE[0] * until_s, ABSENCE[1] * until_s
    at_s = rng.uniform(*API_PAUSE_S)
    for fault in _shuffled(rng, API):
        if at_s >= until_s:
            return
        lasts_s = rng.uniform(*(away if fault is Fault.API_AWAY else LASTING[fault]))
        yield Strike(at_s, fault, 0, lasts_s)
        at_s += lasts_s + rng.uniform(*API_PAUSE_S)


def _phase(
    rng: random.Random, from_s: float, until_s: float, faults: tuple[Fault, ...]
) -> Iterator[Strike]:
    at_s = from_s + rng.uniform(*PAUSE_S)
    for fault in _shuffled(rng, faults):
        if at_s >= until_s:
            return
        lasts_s = rng.uniform(*LASTING.get(fault, (0.0, 0.0)))
        yield Strike(at_s, fault, rng.randrange(1000), lasts_s, rng.uniform(*SLOWNESS_S))
        at_s += rng.uniform(*PAUSE_S)


def _shuffled(rng: random.Random, faults: tuple[Fault, ...]) -> Iterator[Fault]:
    """For ever, each of them once before one comes again."""
    while True:
        deck = list(faults)
        rng.shuffle(deck)
        yield from deck
