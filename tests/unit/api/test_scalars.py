"""Durations as callers write them."""

from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel, TypeAdapter, ValidationError

from queue_operator.api.errors import details_from
from queue_operator.api.scalars import (
    Duration,
    Elapsed,
    PositiveDuration,
    QueryDuration,
    Timestamp,
)


class Given(BaseModel):
    delay: Duration | None = None
    timeout: PositiveDuration | None = None
    time_range: QueryDuration | None = None
    after: Timestamp | None = None


@pytest.mark.parametrize("field", ["delay", "timeout", "time_range"])
@pytest.mark.parametrize("value", [-1, -0.5, "-1", "-5s", "-PT5S", "-P1D", "- PT5S"])
def test_what_is_negative_is_called_that(field: str, value: Any) -> None:
    with pytest.raises(ValidationError) as refused:
        Given.model_validate({field: value})
    [detail] = details_from(refused.value)
    assert (detail.field, detail.code) == (field, "GREATER_THAN_EQUAL")
    assert detail.message == "must not be negative"


@pytest.mark.parametrize("value", ["-", "--5", "-x", "5y", "00:05", "P1M", True, []])
def test_what_is_no_duration_is_not(value: Any) -> None:
    with pytest.raises(ValidationError, match=r"duration|no fixed length"):
        Given.model_validate({"delay": value})


def test_the_longest_is_a_century_and_a_little_over_it_is_over_it() -> None:
    longest = Given.model_validate({"delay": 3_153_600_000, "timeout": "P36500D"})
    assert longest.delay == longest.timeout == timedelta(days=36_500)
    for value in (3_153_600_000.000001, "P36501D", 1e300):
        with pytest.raises(ValidationError) as refused:
            Given.model_validate({"delay": value})
        [detail] = details_from(refused.value)
        assert detail.code == "LESS_THAN_EQUAL"


@pytest.mark.parametrize("value", [5e-324, "5e-324", "2.220446049250313e-16"])
def test_the_least_number_is_a_duration_to_the_schema_too(value: Any) -> None:
    given = Given.model_validate({"time_range": value})
    assert given.time_range == timedelta(microseconds=1)
    numbers = TypeAdapter(QueryDuration).json_schema()["anyOf"][1]
    assert (numbers["exclusiveMinimum"], numbers.get("minimum")) == (0, None)


def test_an_answer_has_no_unit_of_unknown_length() -> None:
    class Told(BaseModel):
        took: Elapsed

    assert Told(took=timedelta(days=400, hours=1)).model_dump_json() == '{"took":"P400DT1H"}'


@pytest.mark.parametrize("value", ["2026-01-01T00:00:00 00:00", "2026-01-01T00:00:00.5 0200"])
def test_an_offset_whose_plus_became_a_space_is_told_how_to_be_written(value: str) -> None:
    with pytest.raises(ValidationError, match="in a query, \\+ is written as %2B"):
        Given.model_validate({"after": value})
    assert Given.model_validate({"after": "2026-01-01 00:00:00Z"}).after
