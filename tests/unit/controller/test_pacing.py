import pytest

from queue_operator.controller.pacing import TokenBucket, backoff_s


class SteppedClock:
    """Time passes only by sleeping."""

    def __init__(self) -> None:
        self.now = 50.0

    def monotonic(self) -> float:
        return self.now

    async def sleep(self, delay_s: float) -> None:
        self.now += delay_s


async def test_the_rate_is_kept() -> None:
    clock = SteppedClock()
    bucket = TokenBucket(100, clock, burst_s=0)
    for _ in range(200):
        await bucket.take()
    assert clock.now - 50 == pytest.approx(2.0)


async def test_an_idle_bucket_allows_a_short_burst() -> None:
    clock = SteppedClock()
    bucket = TokenBucket(100, clock, burst_s=0.25)
    for _ in range(25):
        await bucket.take()
    assert clock.now == pytest.approx(50)


async def test_throttling_pauses_for_as_long_as_asked_and_halves_the_rate() -> None:
    clock = SteppedClock()
    bucket = TokenBucket(100, clock)
    bucket.throttled(7)
    await bucket.take()
    assert clock.now >= 57
    assert bucket.rate_per_s == 50


async def test_success_brings_the_rate_back_but_no_higher() -> None:
    bucket = TokenBucket(100, SteppedClock())
    for _ in range(20):
        bucket.throttled(0)
    assert bucket.rate_per_s == pytest.approx(5)
    for _ in range(1000):
        bucket.succeeded()
    assert bucket.rate_per_s == 100


@pytest.mark.parametrize("failures", [1, 2, 5, 10_000])
def test_backoff_grows_to_its_bound(failures: int) -> None:
    assert 0.25 <= backoff_s(failures) <= min(30, 0.5 * 2 ** min(failures - 1, 16))
