"""Backoff and the bound on attempts."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_operator.domain.limits import MAX_DURATION_S
from queue_operator.domain.outcome import ErrorCategory, ErrorInfo
from queue_operator.domain.retry import (
    DEFAULT_BACKOFF,
    Backoff,
    BackoffStrategy,
    backoff_of,
    delay_s,
    failure_event,
)
from queue_operator.domain.states import Event


def almost_one() -> float:
    return 1.0


@pytest.mark.parametrize(("failures", "ceiling_s"), [(1, 0.5), (2, 1), (3, 2), (7, 30), (99, 30)])
def test_default_backoff_doubles_from_half_a_second_to_thirty(
    failures: int, ceiling_s: float
) -> None:
    assert delay_s(DEFAULT_BACKOFF, failures, almost_one) == pytest.approx(ceiling_s)
    assert delay_s(DEFAULT_BACKOFF, failures, lambda: 0.0) == 0


@given(
    failures=st.integers(1, 10**9),
    multiplier=st.floats(1, 1000),
    initial=st.floats(0, MAX_DURATION_S),
    jitter=st.floats(0, 1, exclude_max=True),
)
def test_a_delay_never_overflows_or_passes_the_maximum(
    failures: int, multiplier: float, initial: float, jitter: float
) -> None:
    backoff = Backoff(initial_delay_s=initial, max_delay_s=60.0, multiplier=multiplier)
    assert 0 <= delay_s(backoff, failures, lambda: jitter) <= 60.0


@pytest.mark.parametrize("first_s", [5e-324, 1e-300, 1e-9])
def test_a_tiny_first_delay_grows_to_the_maximum_too(first_s: float) -> None:
    backoff = Backoff(initial_delay_s=first_s, max_delay_s=60.0)
    delays = [delay_s(backoff, failures, almost_one) for failures in range(1, 1200)]
    assert delays == sorted(delays)
    assert delays[-1] == pytest.approx(60.0)


@pytest.mark.parametrize(
    ("strategy", "delays"),
    [
        (BackoffStrategy.CONSTANT, [2, 2, 2, 2]),
        (BackoffStrategy.LINEAR, [2, 4, 5, 5]),
        (BackoffStrategy.CUSTOM, [3, 5, 5, 5]),
    ],
)
def test_other_strategies_are_exact_up_to_the_maximum(
    strategy: BackoffStrategy, delays: list[float]
) -> None:
    backoff = Backoff(strategy, initial_delay_s=2, max_delay_s=5, delays_s=(3, 8))
    assert [delay_s(backoff, n, almost_one) for n in (1, 2, 3, 4)] == delays


@pytest.mark.parametrize(
    ("strategy", "third_s"),
    [
        (BackoffStrategy.CONSTANT, 3600),
        (BackoffStrategy.LINEAR, 10_800),
        (BackoffStrategy.CUSTOM, 7200),
        (BackoffStrategy.EXPONENTIAL, 30),
    ],
)
def test_only_what_grows_by_itself_is_bounded_where_no_bound_was_asked_for(
    strategy: BackoffStrategy, third_s: float
) -> None:
    for backoff in (
        Backoff(strategy, initial_delay_s=3600, delays_s=(7200,)),
        backoff_of(strategy, initial_delay_s=3600, delays_s=(7200,)),
    ):
        assert delay_s(backoff, 3, almost_one) == third_s
        assert replace(backoff) == backoff


@pytest.mark.parametrize(
    ("category", "attempt", "max_attempts", "event"),
    [
        (ErrorCategory.TEMPORARY, 3, 4, Event.FAIL),
        (ErrorCategory.TEMPORARY, 4, 4, Event.EXHAUST),
        (ErrorCategory.TIMEOUT, 4, 4, Event.EXHAUST),
        (ErrorCategory.TEMPORARY, 1000, None, Event.FAIL),
        (ErrorCategory.TEMPORARY, 1000, 0, Event.FAIL),
        (ErrorCategory.PERMANENT, 1, 4, Event.EXHAUST),
    ],
)
def test_failure_event(
    category: ErrorCategory, attempt: int, max_attempts: int | None, event: Event
) -> None:
    assert failure_event(ErrorInfo("no", category), attempt, max_attempts) is event
