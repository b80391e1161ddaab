"""When a call that failed is made again."""

import random
from collections.abc import Callable
from dataclasses import dataclass

from queue_operator.domain.retry import Backoff, delay_s


@dataclass(frozen=True, slots=True)
class Repeats:
    """Up to `attempts` tries of a call that may be repeated, while the server cannot be reached.

    The pause before the n-th repeat is random, up to a bound that doubles from
    `initial_delay_s` to `max_delay_s`. The deadline of the call is that of all tries together.
    As they stand, the tries last for about five seconds, in which an operator starts anew.
    """

    attempts: int = 10
    initial_delay_s: float = 0.1
    max_delay_s: float = 2.0
    rng: Callable[[], float] = random.random

    def pause_s(self, failures: int) -> float:
        """Seconds before the next try."""
        backoff = Backoff(initial_delay_s=self.initial_delay_s, max_delay_s=self.max_delay_s)
        return delay_s(backoff, failures, self.rng)
