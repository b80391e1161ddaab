"""Fields of durations: with the unit where they are numbers, without where they carry their own."""

import pytest

from queue_operator.domain.units import with_unit, without_unit


@pytest.mark.parametrize(
    ("library", "door"),
    [
        ("delay_s", "delay"),
        ("jobs[3].timeout_s", "jobs[3].timeout"),
        ("backoff.delays_s", "backoff.delays"),
        ("jobs[0].backoff.delays_s[2]", "jobs[0].backoff.delays[2]"),
        ("backoff.initial_delay_s", "backoff.initial_delay"),
        ("defaults.timeout_s", "defaults.timeout"),
        ("time_range_s", "time_range"),
        ("ttl_s", "ttl"),
    ],
)
def test_a_field_of_a_duration_has_both_names(library: str, door: str) -> None:
    assert (without_unit(library), with_unit(door)) == (door, library)
    assert (without_unit(door), with_unit(library)) == (door, library)


@pytest.mark.parametrize("field", ["tags", "job_ids", "submissions_per_s", "backoff", "delayed"])
def test_other_names_are_left(field: str) -> None:
    assert (without_unit(field), with_unit(field)) == (field, field)
