"""Structured logs: one JSON object a line on standard error."""

import json
import logging
from collections.abc import Mapping
from datetime import UTC, datetime

from queue_operator.worker.content import text_of

TEXT_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class JsonFormatter(logging.Formatter):
    """`fields` of a record, as `JobContext.log` sets them, become keys of the object; so does
    what it is `about`, which its message tells too. A field whose name is taken has it with
    `fields.` before it.
    """

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        fields = _mapping(record, "fields") | _mapping(record, "about")
        taken = {*line, "exception"}
        line |= {f"fields.{k}" if k in taken else k: value for k, value in fields.items()}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        try:
            return json.dumps(line, default=text_of, ensure_ascii=False)
        except (TypeError, ValueError, RecursionError):
            plain = {text_of(key): text_of(value) for key, value in line.items()}
            return json.dumps(plain, ensure_ascii=False)


class TextFormatter(logging.Formatter):
    """For people: `fields` follow the message."""

    def __init__(self) -> None:
        super().__init__(TEXT_FORMAT)

    def formatMessage(self, record: logging.LogRecord) -> str:
        fields = _mapping(record, "fields")
        told = "".join(f" {key}={text_of(value)}" for key, value in fields.items())
        return super().formatMessage(record) + told


def _mapping(record: logging.LogRecord, name: str) -> dict[str, object]:
    """What is kept under that name, which records of others may use for something else."""
    found = getattr(record, name, None)
    return dict(found) if isinstance(found, Mapping) else {}


def configure(level: str, *, as_json: bool) -> None:
    """Sends everything to standard error; what was configured before is replaced."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if as_json else TextFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
