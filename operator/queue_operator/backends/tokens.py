"""Buckets of tokens: what may be used per second, and how much at once. Pure."""

from datetime import datetime
from typing import NamedTuple, Protocol

from queue_operator.domain.errors import InvalidArgument
from queue_operator.domain.validation import MAX_DURATION_S, NAME_CHARACTERS, check_text

LEAST_WAIT_S = 0.001
_LEAST = 1e-100
_MOST = 1e100
"""Beyond these, what comes back with time may be no number of a store any more."""


class Bucket(NamedTuple):
    """How full it was when somebody last took from it. Below 0 it is in debt."""

    tokens: float
    filled_at: datetime


class Taken(NamedTuple):
    """What became of a wish: the bucket afterwards, and how long to wait where it was refused."""

    bucket: Bucket
    wait_s: float


def take(
    bucket: Bucket | None, amount: float, now: datetime, *, rate_per_s: float, burst: float
) -> Taken:
    """A new bucket is full. More than a full bucket holds is taken from a full one, on credit. An
    amount below 0 is given back, also to one that is in debt.
    """
    before = bucket or Bucket(burst, now)
    passed_s = max((now - before.filled_at).total_seconds(), 0.0)
    filled = min(before.tokens + passed_s * rate_per_s, burst)
    lacking = min(amount, burst) - filled
    if lacking <= 0 or amount < 0:
        return Taken(Bucket(min(filled - amount, burst), now), 0.0)
    return Taken(before, wait_for(lacking, rate_per_s))


class Buckets(Protocol):
    """Where they are kept."""

    def bucket(self, name: str) -> Bucket | None: ...

    def fill_bucket(self, name: str, bucket: Bucket) -> None: ...


def take_from(
    kept: Buckets, name: str, amount: float, now: datetime, *, rate_per_s: float, burst: float
) -> float:
    """How long to wait, if nothing was taken."""
    taken = take(kept.bucket(name), amount, now, rate_per_s=rate_per_s, burst=burst)
    if not taken.wait_s:
        kept.fill_bucket(name, taken.bucket)
    return taken.wait_s


def wait_for(lacking: float, rate_per_s: float) -> float:
    return min(max(lacking / rate_per_s, LEAST_WAIT_S), MAX_DURATION_S)


def check_take(bucket: object, amount: object, rate_per_s: object, burst: object) -> None:
    """Raises InvalidArgument for arguments of `take_tokens` or `return_tokens` that are wrong."""
    check_text("bucket", bucket, NAME_CHARACTERS)
    for field, value in (("amount", amount), ("rate_per_s", rate_per_s), ("burst", burst)):
        _check_amount(field, value)


def _check_amount(field: str, value: object) -> None:
    """Raises InvalidArgument unless it is a number that something can be taken by."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not _LEAST <= value <= _MOST:  # type: ignore[operator]
        raise InvalidArgument(field, f"must be a number above 0, from {_LEAST:g} to {_MOST:g}")
