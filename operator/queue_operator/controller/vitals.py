"""What the controller's process tells the server's: how it stands, and that it is alive."""

from ctypes import c_int, c_longlong
from dataclasses import dataclass, field
from enum import IntEnum

from queue_operator.controller.figures import Figures
from queue_operator.observing.signs import BEAT_S as BEAT_S
from queue_operator.observing.signs import Signs


class Standing(IntEnum):
    """What the controller can do at the moment."""

    STARTING = 0
    SERVING = 1
    CUT_OFF = 2
    """The API server does not answer."""


@dataclass(slots=True)
class Vitals(Signs):
    """`over_quota` and `refused` count QueueJobs without room, and namespaces that another operator
    serves; `figures` are for the metrics only.
    """

    standing: c_int = field(default_factory=c_int)
    over_quota: c_longlong = field(default_factory=c_longlong)
    refused: c_longlong = field(default_factory=c_longlong)
    figures: Figures = field(default_factory=Figures)

    def begin(self) -> None:
        self.over_quota.value = self.refused.value = 0
        self.end()
        self.beat()

    def end(self) -> None:
        self.figures.begin()
        self.stand(Standing.STARTING)

    def stand(self, standing: Standing) -> None:
        self.standing.value = standing
