"""Lines of Python's `logging` that are written while a handler runs, into the log of its job."""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from queue_operator.domain.texts import cut
from queue_operator.observing.lines import message_of
from queue_operator.worker.content import storable
from queue_operator.worker.context import JobContext
from queue_operator.worker.settings import NOT_CAPTURED
from queue_operator.worker.shipping import line
from queue_operator.worker.traces import trace_of

RUNNING: Final[ContextVar[JobContext | None]] = ContextVar("queue_operator_running", default=None)
"""The job whose handler runs here, also in tasks and threads with a copy of the context."""
MAX_EXCEPTION_BYTES: Final = 4 * 1024
_OURS: Final = "queue_operator"
_PLAIN: Final = frozenset({*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"})
"""What every record has. The rest is what its writer gave with it."""


@contextmanager
def captured(level: str, session_id: str) -> Iterator[None]:
    """Has the root logger hand what it gets of this level and above to the logs of jobs of this
    worker, unless the level is `off`.
    """
    if level == NOT_CAPTURED:
        yield
        return
    handler = Capture(logging.getLevelNamesMapping()[level.upper()], session_id)
    logging.getLogger().addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)


class Capture(logging.Handler):
    """Sees what loggers pass on to the root: what a level holds back anywhere, it never hears of.
    Lines of our own loggers are left out: `ctx.log` ships what it says itself.
    """

    def __init__(self, level: int, session_id: str) -> None:
        super().__init__()
        self._least = level
        self._session_id = session_id
        self._telling = threading.local()

    def emit(self, record: logging.LogRecord) -> None:
        _stand_in(self, record)
        if record.levelno < self._least or _is_ours(record.name):
            return
        context = RUNNING.get()
        if context is None or context.worker.session_id != self._session_id:
            return
        # What the text of an argument logs in its turn is said once.
        if getattr(self._telling, "at_it", False):
            return
        self._telling.at_it = True
        try:
            _ship(context, record)
        except Exception:
            self.handleError(record)
        finally:
            self._telling.at_it = False


def _ship(context: JobContext, record: logging.LogRecord) -> None:
    said = line(record.levelname, message_of(record), _fields(record), record.created)
    context._link.log(said)


def _fields(record: logging.LogRecord) -> dict[str, object]:
    fields: dict[str, object] = {"logger": record.name}
    fields |= {name: value for name, value in vars(record).items() if name not in _PLAIN}
    if exception := _exception(record):
        fields["exception"] = cut(storable(exception), MAX_EXCEPTION_BYTES, keep_end=True)
    if record.stack_info:
        fields["stack"] = cut(storable(record.stack_info), MAX_EXCEPTION_BYTES, keep_end=True)
    return fields


def _exception(record: logging.LogRecord) -> str:
    """Its trace, which of a handler's begins there; that of another process comes as text."""
    error = record.exc_info[1] if record.exc_info else None
    return record.exc_text or "" if error is None else trace_of(error)


def _is_ours(name: str) -> bool:
    return name == _OURS or name.startswith(_OURS + ".")


def _stand_in(handler: Capture, record: logging.LogRecord) -> None:
    """Where nobody has configured logging, Python writes warnings to standard error. It does not
    while there is any handler, and this one must not make a difference.
    """
    root, last = logging.getLogger(), logging.lastResort
    if _has_another(root) or root.handlers[:1] != [handler]:
        return
    seen: logging.Logger | None = logging.getLogger(record.name)
    while seen is not None:
        if _has_another(seen):
            return
        seen = seen.parent if seen.propagate else None
    if last is not None and record.levelno >= last.level:
        last.handle(record)


def _has_another(seen: logging.Logger) -> bool:
    return any(not isinstance(one, Capture) for one in seen.handlers)
