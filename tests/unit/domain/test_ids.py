"""Ids sort by time and say what they are."""

import uuid

import pytest

from queue_operator.domain.ids import ENTROPY_BITS, uuid7

# The example of RFC 9562, A.6: its time, and its random bits as far as they are ours.
TIME_MS = 0x017F22E279B0
ALL_ONES = (1 << ENTROPY_BITS) - 1


def test_the_layout_is_that_of_the_standard() -> None:
    parsed = uuid.UUID(uuid7(TIME_MS * 1_000_000, 0x18C4DC0C0C07398F))
    assert (parsed.version, parsed.variant) == (7, uuid.RFC_4122)
    assert str(parsed) == "017f22e2-79b0-7000-98c4-dc0c0c07398f"


@pytest.mark.parametrize("entropy", [0, ALL_ONES, ALL_ONES + 1, -1])
def test_no_entropy_touches_time_or_version(entropy: int) -> None:
    parsed = uuid.UUID(uuid7(TIME_MS * 1_000_000, entropy))
    assert (parsed.version, parsed.variant) == (7, uuid.RFC_4122)
    assert parsed.int >> 80 == TIME_MS


def test_ids_sort_by_time_whatever_their_entropy() -> None:
    step_ns = 245  # A little more than one of the 4096 parts of a millisecond.
    made = [uuid7(TIME_MS * 1_000_000 + n * step_ns, ALL_ONES * (n % 2)) for n in range(10_000)]
    assert made == sorted(made)
    assert len(set(made)) == len(made)
