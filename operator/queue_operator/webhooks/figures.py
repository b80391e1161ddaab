"""What the sender counts, in memory that the server's process reads: counters go on when its
process is started again. One writer, the sender's event loop, and a reader that may be late.
"""

from bisect import bisect_left
from ctypes import Array, Structure, c_double, c_longlong
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from queue_operator.metrics.replica_table import DELIVERY_BUCKETS_S
from queue_operator.observing.signs import Signs
from queue_operator.webhooks.schedule import Outcome

OUTCOMES: Final = tuple(Outcome)


class Figures(Structure):
    """Tries since the server began, by outcome, and how long they took."""

    _fields_: ClassVar[Any] = [
        ("outcomes", c_longlong * len(OUTCOMES)),
        ("seconds", c_longlong * (len(DELIVERY_BUCKETS_S) + 1)),
        ("seconds_total", c_double),
    ]
    outcomes: "Array[c_longlong]"
    seconds: "Array[c_longlong]"
    seconds_total: float

    def tried(self, outcome: Outcome, took_s: float) -> None:
        self.outcomes[OUTCOMES.index(outcome)] += 1
        self.seconds[bisect_left(DELIVERY_BUCKETS_S, took_s)] += 1
        self.seconds_total += took_s

    def by_outcome(self) -> dict[str, int]:
        """All of them, also those that there were none of."""
        return {str(outcome): n for outcome, n in zip(OUTCOMES, self.outcomes, strict=True)}


@dataclass(slots=True)
class Vitals(Signs):
    """That the sender lives, and what it counts."""

    figures: Figures = field(default_factory=Figures)
