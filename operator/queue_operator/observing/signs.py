"""What a process tells the one that watches it: that it is alive.

The field may be memory that both share. There is no lock to hold: one that is killed while it holds
one would stop the other.
"""

import time
from ctypes import c_double
from dataclasses import dataclass, field
from typing import Final

BEAT_S: Final = 1.0
"""How often an event loop shows that it goes round."""


@dataclass(slots=True)
class Signs:
    """`beat_s` is the newest sign of life, by the clock of the machine, which all its processes
    share.
    """

    beat_s: c_double = field(default_factory=c_double)

    def begin(self) -> None:
        """A new process starts."""
        self.beat()

    def end(self) -> None:
        """The process is gone."""

    def beat(self) -> None:
        self.beat_s.value = time.monotonic()

    def silent_s(self) -> float:
        return time.monotonic() - self.beat_s.value
