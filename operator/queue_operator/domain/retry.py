"""When a failed job runs again, and when it does not."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from math import exp, log
from typing import Final

from queue_operator.domain.limits import MAX_DURATION_S
from queue_operator.domain.outcome import ErrorCategory, ErrorInfo
from queue_operator.domain.states import Event

DEFAULT_MAX_ATTEMPTS: Final = 4
"""One attempt and three retries, for jobs that came through an outer door."""


class BackoffStrategy(StrEnum):
    """`BackoffConfig.strategy` of `external-api.md` section 1."""

    CONSTANT = "CONSTANT"
    LINEAR = "LINEAR"
    EXPONENTIAL = "EXPONENTIAL"
    CUSTOM = "CUSTOM"


# Known by its identity, and no number that a caller could mean.
_AS_USUAL: Final = float("nan")


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long to wait before retry n. Durations in seconds.

    `delays_s` belongs to CUSTOM: the n-th entry before the n-th retry, the last repeats. No delay
    is longer than `max_delay_s`. Left out, it is half a minute for EXPONENTIAL, and no bound for
    the others, which wait exactly as they say.
    """

    strategy: BackoffStrategy = BackoffStrategy.EXPONENTIAL
    initial_delay_s: float = 0.5
    max_delay_s: float = _AS_USUAL
    multiplier: float = 2.0
    delays_s: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.max_delay_s is _AS_USUAL:
            grows = self.strategy is BackoffStrategy.EXPONENTIAL
            object.__setattr__(self, "max_delay_s", 30.0 if grows else MAX_DURATION_S)


_MOST_GROWTH: Final = 700.0

DEFAULT_BACKOFF: Final = Backoff()


def backoff_of(
    strategy: BackoffStrategy | None = None,
    *,
    initial_delay_s: float | None = None,
    max_delay_s: float | None = None,
    multiplier: float | None = None,
    delays_s: tuple[float, ...] = (),
) -> Backoff:
    """The backoff of a submission. What was left out (None) is the system's own."""
    usual = DEFAULT_BACKOFF
    return Backoff(
        strategy=usual.strategy if strategy is None else strategy,
        initial_delay_s=usual.initial_delay_s if initial_delay_s is None else initial_delay_s,
        max_delay_s=_AS_USUAL if max_delay_s is None else max_delay_s,
        multiplier=usual.multiplier if multiplier is None else multiplier,
        delays_s=delays_s,
    )


def delay_s(backoff: Backoff, failures: int, rng: Callable[[], float]) -> float:
    """Seconds before the retry that follows failure number `failures` (1, 2, …).

    `rng` gives a number in [0, 1); only EXPONENTIAL draws one (full jitter).
    """
    n = max(failures, 1)
    match backoff.strategy:
        case BackoffStrategy.CONSTANT:
            exact_s = backoff.initial_delay_s
        case BackoffStrategy.LINEAR:
            exact_s = backoff.initial_delay_s * n
        case BackoffStrategy.CUSTOM:
            exact_s = backoff.delays_s[min(n, len(backoff.delays_s)) - 1] if backoff.delays_s else 0
        case BackoffStrategy.EXPONENTIAL:
            return rng() * _exponential_ceiling_s(backoff, n)
    return min(exact_s, backoff.max_delay_s)


def _exponential_ceiling_s(backoff: Backoff, n: int) -> float:
    most_s = backoff.max_delay_s
    if backoff.initial_delay_s <= 0 or most_s <= 0:
        return 0.0
    # Compared as logarithms, because the power of a large n overflows a float.
    growth = (n - 1) * log(backoff.multiplier)
    if growth >= log(most_s) - log(backoff.initial_delay_s):
        return most_s
    if growth > _MOST_GROWTH:
        # Of a tiny first delay, whose growth alone a float cannot hold.
        return min(exp(log(backoff.initial_delay_s) + growth), most_s)
    return min(backoff.initial_delay_s * exp(growth), most_s)


def failure_event(error: ErrorInfo, attempt: int, max_attempts: int | None) -> Event:
    """FAIL while an attempt is left, EXHAUST otherwise or for a PERMANENT error."""
    if error.category is ErrorCategory.PERMANENT:
        return Event.EXHAUST
    if max_attempts and attempt >= max_attempts:
        return Event.EXHAUST
    return Event.FAIL
