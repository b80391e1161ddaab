"""How long calls took, by what they were and when."""

import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Sequence
from statistics import quantiles
from typing import TypeVar

from queue_operator.domain.errors import Unavailable

T = TypeVar("T")


class Timings:
    """Milliseconds per call, with the moment of its end by `time.perf_counter`."""

    def __init__(self) -> None:
        self._taken: dict[str, list[tuple[float, float]]] = defaultdict(list)
        self.unavailable: Counter[str] = Counter()

    def note(self, what: str, taken_s: float) -> None:
        self._taken[what].append((time.perf_counter(), taken_s * 1000))

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
        return list(self._taken)

    def all(self, what: str) -> list[float]:
        return [ms for _, ms in self._taken[what]]

    def between(self, what: str, first_s: float, last_s: float) -> list[float]:
        """What ended in that time."""
        return [ms for at, ms in self._taken[what] if first_s <= at < last_s]


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
