"""What a process of this machine takes, as the kernel says."""

import os
import resource
from pathlib import Path
from typing import Final

_TICKS_S: Final = os.sysconf("SC_CLK_TCK")
_PAGE: Final = resource.getpagesize()
_USER, _SYSTEM, _PAGES = 11, 12, 21
"""Where they are in /proc/PID/stat, after the name in brackets, which may have spaces."""


def consumption(pid: int) -> tuple[float, int]:
    """Seconds of the processor, and bytes in memory. Raises OSError when it is gone: when it has
    ended, and its parent was told so.
    """
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    ticks = int(fields[_USER]) + int(fields[_SYSTEM])
    return ticks / _TICKS_S, int(fields[_PAGES]) * _PAGE
