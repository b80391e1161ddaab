import logging

import pytest
from kubernetes.client import Configuration

from queue_operator.controller.credentials import Credentials
from queue_operator.controller.kube import KubeClient
from queue_operator.controller.preflight import await_cluster


class Enough(Exception):
    """The test has waited long enough."""


class SteppedClock:
    """Time passes only by sleeping, and ends after an hour."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    async def sleep(self, delay_s: float) -> None:
        self.now += delay_s
        if self.now > 3600:
            raise Enough


async def test_an_api_server_that_stays_away_is_waited_for_and_told_of_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    configuration = Configuration()
    configuration.host = "http://127.0.0.1:1"
    clock = SteppedClock()
    async with KubeClient(Credentials(configuration)) as kube:
        with pytest.raises(Enough):
            await await_cluster(kube, clock)
    [said] = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert "cannot be reached" in said.getMessage()
