"""When a request that failed is sent again."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import httpx

RETRIED_STATUSES: Final = frozenset({429, 502, 503, 504})
"""Answers of a server, or of a proxy before it, that may be others later."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Up to `attempts` tries. The pause doubles from `initial_delay_s`, with full jitter,
    and is never shorter than the server's Retry-After nor longer than `max_delay_s`.
    """

    attempts: int = 4
    initial_delay_s: float = 0.2
    max_delay_s: float = 10.0
    rng: Callable[[], float] = random.random

    def again(self, failures: int, response: httpx.Response | None) -> bool:
        """Whether to try again after `failures` tries; `response` None: there was none."""
        retryable = response is None or response.status_code in RETRIED_STATUSES
        return retryable and failures < self.attempts

    def pause_s(self, failures: int, response: httpx.Response | None) -> float:
        """Seconds before the next try."""
        ceiling = min(self.max_delay_s, self.initial_delay_s * 2.0 ** min(failures - 1, 32))
        wanted = "" if response is None else response.headers.get("retry-after", "")
        least = float(wanted) if wanted.isdecimal() else 0.0
        return min(self.max_delay_s, max(least, self.rng() * ceiling))
