"""What the doors count: requests by rate, errors and duration."""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric

from queue_operator.metrics import replica_table as table
from queue_operator.metrics.shown import Shown, Sums, gauge, one
from queue_operator.metrics.tally import TallyHistogram

UNMATCHED = "unmatched"
"""The route, or method, of whoever asks for what is not there."""


class HttpFigures:
    """Of the REST door."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._requests = Sums(table.HTTP_REQUESTS, registry)
        self._seconds = TallyHistogram(table.HTTP_SECONDS, registry)
        self._in_flight = 0
        Shown(registry, self._show)

    def began(self) -> None:
        self._in_flight += 1

    def ended(self, method: str, route: str, code: str, seconds: float) -> None:
        """What began. The caller sees to it that there are only so many of each label."""
        self._in_flight -= 1
        self._requests.add(method, route, code)
        self._seconds.of(method, route).observe(seconds)

    def _show(self) -> Iterator[Metric]:
        yield gauge(table.HTTP_IN_FLIGHT, one(self._in_flight))


class GrpcFigures:
    """Of the gRPC door."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._calls = Sums(table.GRPC_CALLS, registry)
        self._seconds = TallyHistogram(table.GRPC_SECONDS, registry)

    def ended(self, method: str, code: str, seconds: float | None) -> None:
        """A call; without `seconds` it is no unary one."""
        self._calls.add(method, code)
        if seconds is not None:
            self._seconds.of(method).observe(seconds)
