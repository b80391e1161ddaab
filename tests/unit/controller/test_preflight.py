import pytest
from kubernetes.client import Configuration

from queue_operator.controller.credentials import Credentials
from queue_operator.controller.kube import KubeClient
from queue_operator.controller.preflight import check_cluster
from queue_operator.domain.errors import Unavailable


class SteppedClock:
    """Time passes only by sleeping."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    async def sleep(self, delay_s: float) -> None:
        self.now += delay_s


async def test_an_api_server_that_stays_away_ends_the_start_in_time() -> None:
    configuration = Configuration()
    configuration.host = "http://127.0.0.1:1"
    clock = SteppedClock()
    async with KubeClient(Credentials(configuration)) as kube:
        with pytest.raises(Unavailable, match=r"gave up after 60 s.*KUBECONFIG"):
            await check_cluster(kube, clock, patience_s=60)
    assert 20 <= clock.now <= 60
