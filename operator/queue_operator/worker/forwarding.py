"""Log records of a handler's process on their way to the worker, which writes them."""

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from queue_operator.domain.texts import text_of

_DEPTH: Final = 8


@dataclass(frozen=True, slots=True)
class Said:
    """The members of a record, as plain values that every process knows."""

    record: dict[str, Any]

    def write(self) -> None:
        """Among the worker's own. What its configuration makes of it is no fault of the job."""
        with suppress(Exception):
            record = logging.makeLogRecord(self.record)
            logging.getLogger(record.name).handle(record)


class Forward(logging.Handler):
    """Of what cannot be sent as it is the text is sent."""

    def __init__(self, send: Callable[[Said], None]) -> None:
        super().__init__()
        self._send = send

    def emit(self, record: logging.LogRecord) -> None:
        try:
            said = Said(_plain_record(record))
        except Exception:
            self.handleError(record)
            return
        # Without the worker this process is about to end too.
        with suppress(OSError):
            self._send(said)


def _plain_record(record: logging.LogRecord) -> dict[str, Any]:
    members = vars(record) | {"msg": _message(record), "args": None, "exc_info": None}
    if record.exc_info:
        members["exc_text"] = logging.Formatter().formatException(record.exc_info)
    return {str(name): _plain(value, _DEPTH) for name, value in members.items()}


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception:
        return f"{text_of(record.msg)} {text_of(record.args)}"


def _plain(value: object, depth: int) -> object:
    if type(value) in (str, int, float, bool, type(None)):
        return value
    if type(value) is dict and depth:
        return {text_of(key): _plain(item, depth - 1) for key, item in value.items()}
    if type(value) in (list, tuple) and depth:
        return [_plain(item, depth - 1) for item in value]  # type: ignore[attr-defined]
    return text_of(value)
