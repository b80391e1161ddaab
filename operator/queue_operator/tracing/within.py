"""Handlers in processes of their own go on in the span of their worker."""

import atexit
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Final

from queue_operator.domain.traces import Trace
from queue_operator.tracing.off import OFF
from queue_operator.tracing.opening import Options, open_tracing

SERVICE: Final = "queue-worker"
_FLUSH_S: Final = 1.0


def within(trace: Trace) -> AbstractContextManager[None]:
    """The code inside runs in the span of another process, and what it records goes where that
    one's spans go.
    """
    if not trace.parent or not _is_on():
        return nullcontext()
    from queue_operator.tracing import recording

    return recording.within(trace)


@cache
def _is_on() -> bool:
    """Opened with the first span, and closed with the process."""
    tracing = open_tracing(Options(service=SERVICE, shared=True))
    atexit.register(tracing.close, _FLUSH_S)
    return tracing is not OFF
