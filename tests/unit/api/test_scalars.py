"""Durations as callers write them."""

from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from queue_operator.api.errors import details_from
from queue_operator.api.scalars import Duration, PositiveDuration, QueryDuration


class Given(BaseModel):
    delay: Duration | None = None
    timeout: PositiveDuration | None = None
    time_range: QueryDuration | None = None


@pytest.mark.parametrize("field", ["delay", "timeout", "time_range"])
@pytest.mark.parametrize("value", [-1, -0.5, "-1", "-5s", "-PT5S", "-P1D", "- PT5S"])
def test_what_is_negative_is_called_that(field: str, value: Any) -> None:
    with pytest.raises(ValidationError) as refused:
        Given.model_validate({field: value})
    [detail] = details_from(refused.value)
    assert (detail.field, detail.code) == (field, "GREATER_THAN_EQUAL")
    assert detail.message == "must not be negative"


@pytest.mark.parametrize("value", ["-", "--5", "-x", "5s"])
def test_what_is_no_duration_is_not(value: str) -> None:
    with pytest.raises(ValidationError, match="must be an ISO 8601 duration"):
        Given.model_validate({"delay": value})
