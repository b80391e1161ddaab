"""Server-sent events, read as they come."""

import re
from dataclasses import dataclass
from typing import Final

from queue_operator.client.events import RETRY_S

MOST_BYTES: Final = 4 * 1024 * 1024
"""Of one event: no server sends as much, and what never ends would fill the memory."""

_LINE_END: Final = re.compile(rb"\r\n|\n|\r")


class TooLong(ValueError):
    """What comes is no event of a queue operator."""


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """One event; `id` is the last one that was given, "" before the first."""

    kind: str
    data: str
    id: str


class Decoder:
    """Bytes to events, however they are cut. `retry_s` is how long the server wants its readers
    to wait before they come back.
    """

    def __init__(self, last_id: str = "") -> None:
        self.retry_s = RETRY_S
        self._id = last_id
        self._rest = b""
        self._kind, self._data, self._size = "", list[str](), 0

    @property
    def last_id(self) -> str:
        """The one that was given last, with or without an event."""
        return self._id

    def feed(self, chunk: bytes) -> list[ServerEvent]:
        """The events that end in `chunk`. Raises TooLong."""
        text = self._rest + chunk
        # A line that ends with the chunk in \r may go on with \n.
        held = b"\r" if text.endswith(b"\r") else b""
        *lines, rest = _LINE_END.split(text.removesuffix(b"\r") if held else text)
        self._rest = rest + held
        told = [event for line in lines if (event := self._line(line)) is not None]
        if len(self._rest) + self._size > MOST_BYTES:
            raise TooLong(f"an event has more than {MOST_BYTES} bytes")
        return told

    def _line(self, line: bytes) -> ServerEvent | None:
        if not line:
            return self._end()
        name, _, value = line.decode("utf-8", "replace").partition(":")
        value = value.removeprefix(" ")
        self._size += len(line)
        match name:
            case "event":
                self._kind = value
            case "data":
                self._data.append(value)
            case "id" if "\0" not in value:
                self._id = value
            case "retry" if value.isascii() and value.isdecimal():
                self.retry_s = int(value) / 1000
            case _:
                pass  # A comment, with which the server says that it is there, or a new field.
        return None

    def _end(self) -> ServerEvent | None:
        told = ServerEvent(self._kind or "message", "\n".join(self._data), self._id)
        is_event = bool(self._data or self._kind)
        self._kind, self._data, self._size = "", [], 0
        return told if is_event else None
