"""Not asking too much of the API server: a token bucket that gives way to a 429."""

import asyncio
import random
from typing import Final

from queue_operator.domain.clock import Clock

_LOWEST_SHARE: Final = 0.05
_GROWTH: Final = 1.02
_MAX_BACKOFF_S: Final = 30.0


class MonotonicClock:
    """The loop's time."""

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    async def sleep(self, delay_s: float) -> None:
        await asyncio.sleep(delay_s)


class TokenBucket:
    """At most `rate_per_s` on average. Throttling halves the rate, each success brings back
    2 % of it.
    """

    def __init__(self, rate_per_s: float, clock: Clock, *, burst_s: float = 0.25) -> None:
        self._full_rate = rate_per_s
        self._rate = rate_per_s
        self._burst_s = burst_s
        self._clock = clock
        self._next_at = 0.0

    @property
    def rate_per_s(self) -> float:
        return self._rate

    async def take(self) -> None:
        """Waits for a turn; turns are given in the order of asking."""
        now = self._clock.monotonic()
        self._next_at = max(self._next_at, now - self._burst_s) + 1 / self._rate
        if self._next_at > now:
            await self._clock.sleep(self._next_at - now)

    def throttled(self, retry_after_s: float) -> None:
        """The server is overloaded: nobody goes before `retry_after_s` has passed."""
        self._rate = max(self._rate / 2, self._full_rate * _LOWEST_SHARE)
        self._next_at = max(self._next_at, self._clock.monotonic() + retry_after_s)

    def succeeded(self) -> None:
        self._rate = min(self._rate * _GROWTH, self._full_rate)


def backoff_s(failures: int, base_s: float = 0.5) -> float:
    """Seconds to wait after that many failures in a row (1, 2, …), with jitter, at most 30."""
    ceiling: float = min(_MAX_BACKOFF_S, base_s * 2 ** min(failures - 1, 16))
    return ceiling * random.uniform(0.5, 1.0)  # noqa: S311  (jitter is no secret)
