"""The process that tells receivers of jobs that ended. Nobody else waits for it."""

from collections.abc import Callable
from ctypes import c_double
from typing import Final

from queue_operator.domain.clock import Clock
from queue_operator.metrics.webhooks import SenderFigures
from queue_operator.settings import WebhookSettings
from queue_operator.supervisor.child import SPAWN, Child
from queue_operator.webhooks.figures import Figures, Vitals

HUNG_AFTER_S: Final = 60.0


class SenderChild(Child[Vitals]):
    """Runs one sender at a time, for ever."""

    def __init__(
        self, settings: WebhookSettings, body: Callable[[Vitals], None], clock: Clock
    ) -> None:
        # In memory that a spawned process shares with this one.
        self._vitals = Vitals(beat_s=SPAWN.RawValue(c_double), figures=SPAWN.RawValue(Figures))
        super().__init__(
            "the sender of messages",
            body,
            self._vitals,
            clock,
            hung_after_s=HUNG_AFTER_S,
            unharmed="messages to callback URLs wait",
            enabled=settings.enabled,
        )

    def figures(self) -> SenderFigures | None:
        """For the metrics, from any thread; None where no sender runs."""
        if not self.enabled:
            return None
        counted = self._vitals.figures
        cpu_s, resident_bytes = self.usage()
        return SenderFigures(
            outcomes=counted.by_outcome(),
            seconds=tuple(counted.seconds),
            seconds_total=counted.seconds_total,
            restarts=self.restarts,
            cpu_s=cpu_s,
            resident_bytes=resident_bytes,
        )
