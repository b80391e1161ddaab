"""The histogram against formulas that share nothing with it, and its vectors file."""

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_operator.domain.histogram import bucket_of, percentile, value_of

VECTORS: dict[str, Any] = json.loads(
    (Path(__file__).resolve().parents[2] / "vectors" / "histogram.json").read_text()
)
LARGEST_US = 2**63 - 1
microseconds = st.integers(0, LARGEST_US) | st.integers(0, 100_000)


def reference_bucket(value: int) -> int:
    """Counts up the buckets as the specification draws them: 32 of width 1, then again and
    again 32 of a width that doubles.
    """
    first, width, number = 0, 1, 0
    while value >= first + 32 * width:
        first, number = first + 32 * width, number + 32
        width = 1 if first == 32 else width * 2
    return number + max(value - first, 0) // width


def reference_percentile(values: list[int], per_mille: int) -> int:
    """The smallest value with at least that share of the values at or below it."""
    wanted = Fraction(len(values) * per_mille, 1000)
    return next(
        value
        for count, value in enumerate(sorted(values), start=1)
        if count >= wanted and count >= 1
    )


@pytest.mark.parametrize("vector", VECTORS["buckets"], ids=lambda v: str(v["value_us"]))
def test_bucket_vectors(vector: dict[str, int]) -> None:
    assert vector["bucket"] == reference_bucket(vector["value_us"])
    assert vector["bucket"] == bucket_of(vector["value_us"])
    assert vector["representative_us"] == value_of(vector["bucket"])


@pytest.mark.parametrize("vector", VECTORS["percentiles"], ids=lambda v: str(len(v["values_us"])))
def test_percentile_vectors(vector: dict[str, Any]) -> None:
    counts = {int(bucket): count for bucket, count in vector["counts"].items()}
    for per_mille, value in vector["per_mille"].items():
        exact = reference_percentile(vector["values_us"], int(per_mille))
        assert value == percentile(counts, int(per_mille))
        assert abs(value - exact) <= exact / 64


@given(microseconds)
def test_numbering_is_that_of_the_reference(value: int) -> None:
    assert bucket_of(value) == reference_bucket(value)


@given(microseconds)
def test_the_representative_is_in_its_bucket_and_close(value: int) -> None:
    representative = value_of(bucket_of(value))
    assert bucket_of(representative) == bucket_of(value)
    assert abs(representative - value) <= value / 64 or value == representative


@given(microseconds, microseconds)
def test_order_is_kept(one: int, other: int) -> None:
    assert (bucket_of(one) <= bucket_of(other)) or one > other


@given(st.lists(microseconds, min_size=1, max_size=50), st.integers(1, 1000))
def test_a_percentile_is_close_to_the_exact_one(values: list[int], per_mille: int) -> None:
    counts: dict[int, int] = {}
    for value in values:
        counts[bucket_of(value)] = counts.get(bucket_of(value), 0) + 1
    exact = reference_percentile(values, per_mille)
    found = percentile(counts, per_mille)
    assert found is not None
    assert abs(found - exact) <= exact / 64


def test_negative_counts_as_nothing_and_nothing_has_no_percentile() -> None:
    assert bucket_of(-5) == bucket_of(0)
    assert percentile({}, 500) is None
