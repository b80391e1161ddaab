"""What the controller's process tells the server's: how it stands, and that it is alive.

The fields may be memory that both processes share. There is no lock to hold: one that is killed
while it holds one would stop the other.
"""

import time
from ctypes import c_double, c_int, c_longlong
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from queue_operator.controller.figures import Figures

BEAT_S: Final = 1.0
"""How often the controller's event loop shows that it goes round."""


class Standing(IntEnum):
    """What the controller can do at the moment."""

    STARTING = 0
    SERVING = 1
    CUT_OFF = 2
    """The API server does not answer."""


@dataclass(slots=True)
class Vitals:
    """`beat_s` is the newest sign of life, by the clock of the machine, which all its processes
    share. `over_quota` and `refused` count QueueJobs without room, and namespaces that another
    operator serves; `figures` are for the metrics only.
    """

    standing: c_int = field(default_factory=c_int)
    beat_s: c_double = field(default_factory=c_double)
    over_quota: c_longlong = field(default_factory=c_longlong)
    refused: c_longlong = field(default_factory=c_longlong)
    figures: Figures = field(default_factory=Figures)

    def begin(self) -> None:
        """A new process starts."""
        self.over_quota.value = self.refused.value = 0
        self.figures.begin()
        self.stand(Standing.STARTING)
        self.beat()

    def beat(self) -> None:
        self.beat_s.value = time.monotonic()

    def silent_s(self) -> float:
        return time.monotonic() - self.beat_s.value

    def stand(self, standing: Standing) -> None:
        self.standing.value = standing
