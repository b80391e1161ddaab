"""Settings of what a replica tells of itself: whoever gives nonsense is told which field."""

import math
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from queue_operator.settings import LogSettings, MetricsSettings, TracingSettings


@pytest.mark.parametrize(
    ("kind", "field", "given"),
    [
        *(
            (MetricsSettings, field, given)
            for field in ("linger_s", "leader_s", "unused_names_s", "depth_interval_s")
            for given in (math.inf, math.nan, 1e300, -1, "soon")
        ),
        (MetricsSettings, "leader_s", 0.0001),
        *((TracingSettings, "flush_s", given) for given in (math.inf, math.nan, 1e300, 0)),
        *((TracingSettings, "sample_ratio", given) for given in (math.nan, 2, -1)),
        *(
            (TracingSettings, "endpoint", given)
            for given in (
                "collector:4317",
                "ftp://collector",
                "http://collector:port",
                "http://collector:99999",
                "http://collector:0",
                "http://:4317",
                "http://[::1",
                "http://the collector",
                "http://collector\n",
                "http://collector/v1/traces",
            )
        ),
        *((LogSettings, "format", given) for given in ("xml", "", None)),
        *((LogSettings, "level", given) for given in ("loud", "", None)),
    ],
)
def test_nonsense_is_refused_by_the_name_of_its_field(
    kind: type[BaseModel], field: str, given: Any
) -> None:
    with pytest.raises(ValidationError) as refused:
        kind(**{field: given})
    assert [error["loc"] for error in refused.value.errors()] == [(field,)]


@pytest.mark.parametrize(
    "endpoint", ["", "http://collector:4317", "https://otel.example/", "http://[::1]:4317"]
)
def test_a_collector_is_named_by_its_address(endpoint: str) -> None:
    assert TracingSettings(endpoint=endpoint).endpoint == endpoint
