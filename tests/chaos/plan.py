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


WORKER_ONLY: Final = (Fault.KILL_WORKER, Fault.FREEZE_WORKER, Fault.DRAIN_WORKER)
LASTING: Final = {
    Fault.FREEZE_WORKER: (1.0, 6.0),
    Fault.FREEZE_OPERATOR: (0.5, 5.0),
    Fault.DELAY_WORKER: (1.0, 4.0),
    Fault.DELAY_STORE: (1.0, 3.0),
}
"""How long each may last, in seconds; others are over at once."""


PAUSE_S: Final = (1.2, 3.2)
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


def plan(seed: int, seconds: float) -> list[Strike]:
    """The strikes of a run. In its first third only workers are struck; after that every kind
    of fault strikes once before one strikes again.
    """
    rng = random.Random(seed)  # noqa: S311
    only_workers = seconds / 3
    return [
        *_phase(rng, 0.0, only_workers, WORKER_ONLY),
        *_phase(rng, only_workers, seconds, tuple(Fault)),
    ]


def _phase(
    rng: random.Random, from_s: float, until_s: float, faults: tuple[Fault, ...]
) -> Iterator[Strike]:
    deck: list[Fault] = []
    at_s = from_s + rng.uniform(*PAUSE_S)
    while at_s < until_s:
        if not deck:
            deck = list(faults)
            rng.shuffle(deck)
        fault = deck.pop()
        lasts_s = rng.uniform(*LASTING.get(fault, (0.0, 0.0)))
        yield Strike(at_s, fault, rng.randrange(1000), lasts_s, rng.uniform(*SLOWNESS_S))
        at_s += rng.uniform(*PAUSE_S)
