"""Lines of handlers on their way to the server. Nobody ever waits for them."""

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from pydantic_core import to_json

from queue_operator.domain.texts import cut, text_of
from queue_operator.wire.v1 import worker_pb2 as wire
from queue_operator.worker.content import storable

MAX_MESSAGE_BYTES: Final = 8 * 1024
MAX_FIELDS_BYTES: Final = 8 * 1024
MAX_LINES: Final = 10_000
MAX_BYTES: Final = 4 * 1024 * 1024
"""What waits at most, of all jobs of a worker: while it is cut off the oldest are dropped."""
LINES_PER_MESSAGE: Final = 512
BYTES_PER_MESSAGE: Final = 256 * 1024
_LINE_BYTES: Final = 128


@dataclass(frozen=True, slots=True)
class Line:
    """What a handler said; `at` is in seconds since 1970, `fields` the text of a JSON object."""

    at: float
    level: str
    message: str
    fields: str

    @property
    def size(self) -> int:
        """An upper bound of its bytes on the wire."""
        return _LINE_BYTES + 4 * (len(self.level) + len(self.message) + len(self.fields))


def fields_of(given: object, more: Mapping[str, object]) -> dict[str, object]:
    """The fields of a line, which were given as a mapping, by name, or both."""
    fields = {}
    if isinstance(given, Mapping):
        fields = {storable(text_of(name)): value for name, value in given.items()}
    elif given is not None:
        fields = {"fields": given}
    return fields | {storable(name): value for name, value in more.items()}


def line(level: str, message: str, fields: Mapping[str, object], at: float | None = None) -> Line:
    """Never raises: a line that cannot be written must not fail a job. `at` is now, unless it is
    given.
    """
    return Line(
        at=time.time() if at is None else at,
        level=storable(level),
        message=cut(storable(message), MAX_MESSAGE_BYTES),
        fields=_object(fields) if fields else "{}",
    )


def _object(fields: Mapping[str, object]) -> str:
    try:
        text = to_json(fields, fallback=text_of, inf_nan_mode="strings", serialize_unknown=True)
    except Exception as error:
        # A serializer of the user's, a lone surrogate, a circle.
        plain = {name: storable(text_of(value)) for name, value in fields.items()}
        text = to_json(plain | {"unreadable": storable(text_of(error))})
    if len(text) <= MAX_FIELDS_BYTES:
        return text.decode()
    return to_json({"cut": cut(text.decode(), MAX_FIELDS_BYTES // 2)}).decode()


class Speaker(Protocol):
    """Whose lines they are: a run, under the token that it has now."""

    @property
    def job_id(self) -> str: ...

    @property
    def token(self) -> str: ...


@dataclass(slots=True, eq=False)
class LineCounter:
    """Numbers the lines of a run from 1, anew under each token."""

    attempt: int
    token: str = ""
    last: int = 0

    def next(self, token: str) -> int:
        if token != self.token:
            self.token, self.last = token, 0
        self.last += 1
        return self.last


class LogBuffer:
    """Lines of all jobs, in their order, from any thread. `added` is called when the first
    comes that waits.
    """

    def __init__(self, added: Callable[[], object]) -> None:
        self._added = added
        self._lock = threading.Lock()
        self._waiting: deque[tuple[int, wire.LogLine]] = deque()
        self._bytes = 0

    def add(self, speaker: Speaker, counter: LineCounter, said: Line) -> None:
        token = speaker.token
        message = wire.LogLine(
            job_id=speaker.job_id,
            token=token,
            attempt=counter.attempt,
            level=said.level,
            message=said.message,
            fields=said.fields,
        )
        message.at.FromNanoseconds(int(said.at * 1e9))
        with self._lock:
            message.number = counter.next(token)
            first = not self._waiting
            self._waiting.append((said.size, message))
            self._bytes += said.size
            while len(self._waiting) > MAX_LINES or self._bytes > MAX_BYTES:
                self._bytes -= self._waiting.popleft()[0]
        if first:
            self._added()

    def take_batches(self, max_bytes: int = BYTES_PER_MESSAGE) -> list[wire.LogBatch]:
        """All that waits, in batches that are small beside the rest. What is lost with a
        connection shows as a gap in the numbers.
        """
        if not self._waiting:
            return []
        with self._lock:
            waiting, self._waiting, self._bytes = self._waiting, deque(), 0
        batches: list[wire.LogBatch] = []
        size = 0
        for line_size, message in waiting:
            size += line_size
            full = not batches or len(batches[-1].lines) == LINES_PER_MESSAGE
            if full or size > min(max_bytes, BYTES_PER_MESSAGE):
                batches.append(wire.LogBatch())
                size = line_size
            batches[-1].lines.append(message)
        return batches
