"""How log lines are written: one JSON object a line for programs, or text for people."""

import json
import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

from queue_operator.domain.texts import text_of
from queue_operator.observing import known

TEXT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
TEXT_WITH_PROCESS: Final = "%(asctime)s %(levelname)s %(processName)s %(name)s: %(message)s"
_FIRST_PROCESS: Final = "MainProcess"
_NO_JSON: Final = (TypeError, ValueError, RecursionError)


class LogFormat(StrEnum):
    JSON = "json"
    TEXT = "text"


class LogLevel(StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def configure(
    level: str, form: LogFormat, process: str, text: str = TEXT, *, force: bool = False
) -> None:
    """Sends all lines of this process to standard error. What was configured before stays, unless
    it is replaced by `force`.
    """
    handler = logging.StreamHandler()
    as_json = form is LogFormat.JSON
    handler.setFormatter(JsonFormatter(process) if as_json else TextFormatter(text))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=force)


class JsonFormatter(logging.Formatter):
    """`fields` of a record, as a handler's `ctx.log` sets them, become keys of the object; so does
    what it is `about`, which its message tells too, and what is known of the job, the worker and
    the trace where it is written. A field whose name is taken has it with `fields.` before it.

    `process` names the first process of a program; others have names of their own.
    """

    def __init__(self, process: str = "") -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": message_of(record),
        }
        if process := self._name_of(record):
            line["process"] = process
        fields = _mapping(record, "fields") | _mapping(record, "about")
        taken = {*line, "exception"}
        told = {f"fields.{k}" if k in taken else k: value for k, value in fields.items()}
        line |= _known_beside(told) | told
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        elif record.exc_text:
            line["exception"] = record.exc_text
        try:
            return _json(line)
        except _NO_JSON:
            return _json({text_of(key): _plain(value) for key, value in line.items()})

    def _name_of(self, record: logging.LogRecord) -> str:
        name = record.processName or ""
        return self._process if name == _FIRST_PROCESS else name


class TextFormatter(logging.Formatter):
    """For people: `fields` follow the message."""

    def __init__(self, text: str = TEXT) -> None:
        super().__init__(text)

    def formatMessage(self, record: logging.LogRecord) -> str:
        fields = _mapping(record, "fields")
        told = "".join(f" {key}={text_of(value)}" for key, value in fields.items())
        return super().formatMessage(record) + told


def _known_beside(told: Mapping[str, object]) -> dict[str, object]:
    """Nothing of the job that runs here for a line that is about another one."""
    found = known()
    if "job_id" in told and told["job_id"] != found.get("job_id"):
        return {"worker": found["worker"]} if "worker" in found else {}
    return found


def _json(value: object) -> str:
    """Raises `_NO_JSON`, also for what is no number, for which JSON has no word."""
    return json.dumps(value, default=text_of, ensure_ascii=False, allow_nan=False)


def _plain(value: object) -> object:
    """The value, or its text where JSON cannot write it."""
    try:
        _json(value)
    except _NO_JSON:
        return text_of(value)
    return value


def message_of(record: logging.LogRecord) -> str:
    """A line whose arguments do not fit its text is written all the same."""
    try:
        return record.getMessage()
    except Exception:
        return f"{text_of(record.msg)} {text_of(record.args)}"


def _mapping(record: logging.LogRecord, name: str) -> dict[str, object]:
    """What is kept under that name, which records of others may use for something else."""
    found = getattr(record, name, None)
    return dict(found) if isinstance(found, Mapping) else {}
