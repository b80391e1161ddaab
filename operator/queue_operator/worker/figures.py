"""What a worker counts of itself, where metrics are asked for and can be had."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Protocol

from queue_operator import __version__
from queue_operator.wire.v1 import worker_pb2 as wire
from queue_operator.worker.settings import DEFAULT_METRICS_PORT, PREFIX, WorkerSettings

logger = logging.getLogger(__name__)

LAG_S: Final = 0.5
LOST: Final = "lost"
_OUTCOMES: Final = {
    wire.OUTCOME_KIND_COMPLETE: "completed",
    wire.OUTCOME_KIND_FAIL: "failed",
    wire.OUTCOME_KIND_ACK_EXECUTING: "stopped",
    wire.OUTCOME_KIND_HAND_BACK: "handed_back",
}
_CLASSES: Final = {
    number: name.removeprefix("ERROR_CATEGORY_").lower()
    for name, number in wire.ErrorCategory.items()
    if number != wire.ERROR_CATEGORY_UNSPECIFIED
}
ENDS: Final = (
    ("completed", ""),
    *(("failed", error_class) for error_class in _CLASSES.values()),
    ("stopped", ""),
    ("handed_back", ""),
    (LOST, ""),
)
"""Every outcome and error class that an attempt can end with."""


class Figures(Protocol):
    """`metrics.worker.WorkerFigures`."""

    def know(self, types: Iterable[str]) -> None: ...

    def session_begun(self) -> None: ...

    def ended(self, type: str, outcome: str, error_class: str, seconds: float | None) -> None: ...

    def lease_lost(self) -> None: ...

    def beat(self) -> None: ...

    def answered(self, seconds: float) -> None: ...

    def late(self, loop: str) -> Callable[[float], None]: ...

    def serve(self, port: int) -> Callable[[], None]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How a worker stands at one moment."""

    connected: bool
    busy: int
    free: int
    handlers: int
    unsent: int
    stuck: int


def figures_of(settings: WorkerSettings, look: Callable[[], Standing]) -> Figures | None:
    """None where the settings ask for none, or prometheus_client is not there."""
    if settings.metrics_port == 0:
        return None
    try:
        # It needs what the base install has not.
        from queue_operator.metrics.worker import WorkerFigures
    except ModuleNotFoundError as error:
        if error.name != "prometheus_client":
            raise
        if settings.metrics_port is not None:
            logger.warning(
                "no metrics on port %d: they need prometheus-client, which is not installed: "
                "pip install 'queue-operator[metrics]', or set %sMETRICS_PORT to 0",
                settings.metrics_port,
                PREFIX,
            )
        return None
    return WorkerFigures((__version__, settings.worker_name, settings.server), ENDS, look)


def served(settings: WorkerSettings, figures: Figures) -> Callable[[], None]:
    """Serves the figures until what it gives is called. A port that is taken is told: a second
    worker on one machine should still work.
    """
    port = DEFAULT_METRICS_PORT if settings.metrics_port is None else settings.metrics_port
    try:
        return figures.serve(port)
    except OSError as error:
        # Nobody has asked for the default.
        level = logging.INFO if settings.metrics_port is None else logging.WARNING
        logger.log(
            level,
            "no metrics on port %d: %s; set %sMETRICS_PORT to a free port, or to 0 for none",
            port,
            error.strerror,
            PREFIX,
        )
        return lambda: None


class Counted:
    """What a session meets, for figures that may not be there."""

    def __init__(self, figures: Figures | None) -> None:
        self._figures = figures
        self._beat_s: float | None = None

    def ended(self, type_: str, outcome: wire.Outcome, begun_s: float | None) -> None:
        """`begun_s` is when the handler began, None if it never did."""
        if self._figures is not None and (name := _OUTCOMES.get(outcome.kind)) is not None:
            failed = outcome.kind == wire.OUTCOME_KIND_FAIL
            error_class = _CLASSES.get(outcome.error.category, "") if failed else ""
            self._figures.ended(type_, name, error_class, _since(begun_s))

    def lost(self, type_: str, begun_s: float | None) -> None:
        """Nothing is reported of the attempt: it is no longer this worker's."""
        if self._figures is not None:
            self._figures.ended(type_, LOST, "", _since(begun_s))

    def lease_lost(self) -> None:
        if self._figures is not None:
            self._figures.lease_lost()

    def beat(self, held: int) -> None:
        """A heartbeat goes out; one that names nothing is not answered."""
        if self._figures is not None:
            self._figures.beat()
            if held and self._beat_s is None:
                self._beat_s = time.monotonic()

    def answered(self) -> None:
        """Leases were told of, which is what answers a heartbeat."""
        if self._figures is not None and self._beat_s is not None:
            self._figures.answered(time.monotonic() - self._beat_s)
            self._beat_s = None

    def connected(self) -> None:
        if self._figures is not None:
            self._figures.session_begun()

    def disconnected(self) -> None:
        self._beat_s = None

    def know(self, types: Iterable[str]) -> None:
        if self._figures is not None:
            self._figures.know(types)


def _since(begun_s: float | None) -> float | None:
    return None if begun_s is None else time.monotonic() - begun_s


class LagWatch:
    """Looks twice a second how late timers of a loop fire, for as long as the loop runs."""

    def __init__(self, loop: asyncio.AbstractEventLoop, observe: Callable[[float], None]) -> None:
        self._loop = loop
        self._observe = observe
        self._due_s = 0.0

    def start(self) -> None:
        """On the thread of the loop."""
        self._due_s = self._loop.time() + LAG_S
        self._loop.call_at(self._due_s, self._fired)

    def _fired(self) -> None:
        self._observe(max(0.0, self._loop.time() - self._due_s))
        self.start()
