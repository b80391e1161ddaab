"""How long calls took, by what they were and when."""

import time
from array import array
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Awaitable, Sequence
from statistics import median, quantiles
from typing import TypeVar

from queue_operator.domain.errors import Unavailable

T = TypeVar("T")


class Timings:
    """Milliseconds per call, with the moment of its end by `time.perf_counter`. Millions of calls
    take sixteen bytes each.
    """

    def __init__(self) -> None:
        self._ended_s: dict[str, array[float]] = defaultdict(lambda: array("d"))
        self._taken_ms: dict[str, array[float]] = defaultdict(lambda: array("d"))
        self.unavailable: Counter[str] = Counter()

    def note(self, what: str, taken_s: float) -> None:
        self._ended_s[what].append(time.perf_counter())
        self._taken_ms[what].append(taken_s * 1000)

    async def of(self, what: str, call: Awaitable[T]) -> T | None:
        """The answer; None, counted, where the store was unavailable."""
        before = time.perf_counter()
        try:
            return await call
        except Unavailable:
            self.unavailable[what] += 1
            return None
        finally:
            self.note(what, time.perf_counter() - before)

    @property
    def names(self) -> list[str]:
        return list(self._taken_ms)

    def all(self, what: str) -> list[float]:
        return list(self._taken_ms[what])

    def between(self, what: str, first_s: float, last_s: float) -> list[float]:
        """What ended in that time."""
        ended_s, taken_ms = self._ended_s[what], self._taken_ms[what]
        return [*taken_ms[bisect_left(ended_s, first_s) : bisect_left(ended_s, last_s)]]

    def typical(self, what: str, first_s: float, last_s: float, window_s: float) -> float:
        """The median of the 99th percentiles of the windows in that time: what it is like, however
        long the server or the machine stood still in some of them.
        """
        starts = [first_s + n * window_s for n in range(int((last_s - first_s) / window_s))]
        taken = [self.between(what, start, start + window_s) for start in starts]
        return median([percentile(one, 99) for one in taken if one] or [0.0])


def figures(name: str, taken_ms: Sequence[float]) -> dict[str, float]:
    """Median, 99th percentile and maximum as metrics; none of nothing."""
    if not taken_ms:
        return {}
    return {
        f"{name}_p50_ms": percentile(taken_ms, 50),
        f"{name}_p99_ms": percentile(taken_ms, 99),
        f"{name}_max_ms": max(taken_ms),
    }


def percentile(taken_ms: Sequence[float], hundredths: int) -> float:
    if len(taken_ms) == 1:
        return taken_ms[0]
    return quantiles(taken_ms, n=100, method="inclusive")[hundredths - 1]
