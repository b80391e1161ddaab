"""The controller's process. Whatever the API server does to it, REST, gRPC and the sessions of
workers go on.
"""

import time
from collections.abc import Callable
from ctypes import c_double, c_int, c_longlong

from queue_operator.controller.figures import Figures
from queue_operator.controller.ownership import NamespaceTaken
from queue_operator.controller.vitals import Standing, Vitals
from queue_operator.domain.clock import Clock
from queue_operator.domain.errors import Unavailable
from queue_operator.metrics.controlling import ControllerFigures
from queue_operator.settings import ControllerSettings
from queue_operator.supervisor.child import SPAWN, Child

Body = Callable[[Vitals], None]
"""What the process runs. It is pickled."""


def shared_vitals() -> Vitals:
    """In memory that a spawned process shares with this one."""
    return Vitals(
        beat_s=SPAWN.RawValue(c_double),
        standing=SPAWN.RawValue(c_int),
        over_quota=SPAWN.RawValue(c_longlong),
        refused=SPAWN.RawValue(c_longlong),
        figures=SPAWN.RawValue(Figures),
    )


class ControllerChild(Child[Vitals]):
    """Runs one controller at a time, for ever."""

    def __init__(self, settings: ControllerSettings, body: Body, clock: Clock) -> None:
        self._vitals = shared_vitals()
        super().__init__(
            "the controller",
            body,
            self._vitals,
            clock,
            hung_after_s=settings.hung_after_s,
            unharmed="REST and gRPC go on",
            enabled=settings.enabled,
        )

    async def check(self) -> None:
        """Raises Unavailable while resources are not served as they should be."""
        if not self.enabled:
            return
        standing, refused = self._vitals.standing.value, self._vitals.refused.value
        if standing != Standing.SERVING:
            raise Unavailable(f"the controller does not serve: {Standing(standing).name}")
        if self._vitals.silent_s() > self._hung_after_s:
            raise Unavailable("the controller is silent")
        if refused:
            raise NamespaceTaken(f"{refused} of the namespaces are left alone; the log says why")

    def figures(self) -> ControllerFigures | None:
        """For the metrics, from any thread; None where no controller runs."""
        if not self.enabled:
            return None
        counted = self._vitals.figures
        since_s = counted.status_since_s
        cpu_s, resident_bytes = self.usage()
        return ControllerFigures(
            up=self._vitals.standing.value == Standing.SERVING,
            restarts=self.restarts,
            over_quota=self._vitals.over_quota.value,
            refused_namespaces=self._vitals.refused.value,
            owned_namespaces=counted.owned_namespaces,
            intake_backlog=counted.intake_backlog,
            status_backlog=counted.status_backlog,
            status_lag_s=max(0.0, time.monotonic() - since_s) if since_s else 0.0,
            status_writes=counted.writes(),
            api_requests=counted.requests(),
            throttled=counted.throttled(),
            watch_restarts=counted.restarts(),
            compared_at_s=counted.compared_at_s or None,
            comparison_s=counted.comparison_s,
            lag_counts=tuple(counted.lag_counts),
            lag_total_s=counted.lag_total_s,
            cpu_s=cpu_s,
            resident_bytes=resident_bytes,
        )
