"""Generates the test vectors that every implementation of the histogram must reproduce."""

import json
import random
from pathlib import Path

from queue_operator.domain.histogram import bucket_of, percentile, value_of

HISTOGRAM = Path("tests/vectors/histogram.json")
_PER_MILLE = (1, 500, 900, 990, 1000)
_LARGEST_US = 2**63 - 1


def vectors() -> dict[Path, str]:
    """The generated files: path below the repository, content."""
    document = {
        "buckets": [
            {"value_us": value, "bucket": bucket_of(value), "representative_us": value_of(bucket)}
            for value in _values()
            for bucket in (bucket_of(value),)
        ],
        "percentiles": [_percentiles(values) for values in _samples()],
    }
    return {HISTOGRAM: json.dumps(document, indent=1) + "\n"}


def _values() -> list[int]:
    """Every exact bucket, both sides of every power of two and of some steps between."""
    powers = [2**exponent for exponent in range(5, 63)]
    edges = [power + offset for power in powers for offset in (-1, 0, 1)]
    steps = [power + power // 32 * 17 + offset for power in powers for offset in (-1, 0)]
    return [-(2**40), -1, *sorted({*range(130), *edges, *steps, _LARGEST_US})]


def _samples() -> list[list[int]]:
    draw = random.Random(20260301)  # noqa: S311  (a fixed sequence is what is wanted)
    spread = [int(draw.lognormvariate(11, 3)) for _ in range(200)]
    return [[7], [0, 0, 0], [1, 2, 3, 4], [5, 5_000_000], list(range(1000, 2000, 7)), spread]


def _percentiles(values: list[int]) -> dict[str, object]:
    counts: dict[int, int] = {}
    for value in values:
        counts[bucket_of(value)] = counts.get(bucket_of(value), 0) + 1
    return {
        "values_us": values,
        "counts": {str(bucket): counts[bucket] for bucket in sorted(counts)},
        "per_mille": {str(rank): percentile(counts, rank) for rank in _PER_MILLE},
    }
