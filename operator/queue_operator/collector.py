"""How seldom Python looks for cycles in a process that makes many objects."""

import gc
from typing import Final

COLLECT_AFTER: Final = (20_000, 20, 20)
"""So many new objects are looked at at a time. Where jobs are short, at Python's 700, it took a
tenth of the server's processor and a quarter of a worker's.
"""


def collect_seldom() -> None:
    """What was imported by now stays, and most of what comes goes by itself."""
    gc.freeze()
    gc.set_threshold(*COLLECT_AFTER)
