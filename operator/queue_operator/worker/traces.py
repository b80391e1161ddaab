"""The trace of a handler's exception, as whoever wrote the handler wants to read it."""

import contextlib
import traceback
from concurrent.futures import thread
from pathlib import Path
from typing import Final

_CALLER: Final = str(Path(__file__).with_name("runner.py"))
"""What calls handlers: what comes before it in a trace is not theirs."""
_OURS: Final = str(Path(__file__).parent)
_CARRIERS: Final = (contextlib.__file__, thread.__file__)
"""What the caller calls through, to a dependency or in a thread."""


def trace_of(error: BaseException) -> str:
    """Begins at the handler, or at whatever else of the user's was called; so do those of the
    exceptions that it came from. Empty for one that cannot be looked at.
    """
    try:
        return _trace_of(error)
    except Exception:
        return ""


def _trace_of(error: BaseException) -> str:
    told = traceback.TracebackException.from_exception(error)
    left = [told]
    while left:
        one = left.pop()
        _cut(one)
        left += [other for other in (one.__cause__, one.__context__) if other is not None]
        left += one.exceptions or ()
    return "".join(told.format())


def _cut(told: traceback.TracebackException) -> None:
    names = [frame.filename for frame in told.stack]
    begin = len(names) - names[::-1].index(_CALLER) if _CALLER in names else 0
    while begin < len(names) and (names[begin].startswith(_OURS) or names[begin] in _CARRIERS):
        begin += 1
    del told.stack[:begin]
    if not told.stack:
        told.stack = None  # type: ignore[assignment]  # as of an exception without a trace
