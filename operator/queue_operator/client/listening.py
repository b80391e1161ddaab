"""Streams of events that go on however often they break, written once for both clients."""

import logging
from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Final, TypeVar

from pydantic import ValidationError

from queue_operator.client.events import NOW_ON, SILENCE_S, JobEvent
from queue_operator.client.protocol import Call, Reply, ServerError, error_of, unreachable
from queue_operator.client.retrying import REFUSED, RETRIED_STATUSES, RetryPolicy
from queue_operator.client.sse import Decoder, ServerEvent, TooLong
from queue_operator.domain.errors import InvalidArgument

logger = logging.getLogger(__name__)

T = TypeVar("T")

STREAM: Final = "text/event-stream"
LAST_ID: Final = "Last-Event-ID"

_WITHOUT: Final = frozenset({404, 405, 501})
"""Answers of a server that has no such stream; 501 where its store is none of ours, or it is of a
release that followed nothing but Postgres.
"""
_EXPIRED: Final = 410
_LATE_S: Final = 1.0
"""By so much the end of the time may be overslept."""
_JOB: Final = "job"
_END: Final = "end"


@dataclass(frozen=True, slots=True)
class Pause:
    """To do nothing for so many seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Listen:
    """To open a stream, of which no byte may take longer than `silence_s`."""

    call: Call
    headers: dict[str, str] = field(default_factory=dict)
    silence_s: float = SILENCE_S


@dataclass(frozen=True, slots=True)
class Hear:
    """To read on in the stream that is open: `Reply.chunk`, empty at its end."""


@dataclass(frozen=True, slots=True)
class Leave:
    """To close it."""


@dataclass(frozen=True, slots=True)
class Told:
    """An event for whoever iterates."""

    event: JobEvent


Step = Call | Pause | Listen | Hear | Leave | Told
Flow = Generator[Step, Reply, T]


class NoStream(Exception):
    """The server tells no events there: it is older, its store is none of ours and has no log, or
    there is no job.
    """


class OutOfTime(Exception):
    """The time that was given is over."""


class Ear:
    """The events of one stream. What breaks is opened again after the last event that was heard;
    where the server no longer knows it, from now on, which `on_gap` is told.

    Raises NoStream, with `or_else` also where there is no room for one more, OutOfTime when the
    clock says `until`, Unavailable when the server was not heard for `outage_s`, and the error
    that its answer stands for.
    """

    def __init__(
        self,
        call: Call,
        policy: RetryPolicy,
        clock: Callable[[], float],
        *,
        outage_s: float,
        until: float = float("inf"),
        after: str | None = None,
        on_gap: Callable[[str], None] | None = None,
        or_else: bool = False,
    ) -> None:
        self._or_else = or_else
        self._call, self._policy, self._clock = call, policy, clock
        self._outage_s, self._until = outage_s, until
        self._on_gap = on_gap or _warn
        self._position = _position(after)
        self._heard: deque[ServerEvent] = deque()
        self._decoder = Decoder()
        self._is_open = False
        self._silence_s = SILENCE_S
        self._tries = 0
        self._answered = clock()

    def next(self) -> Flow[JobEvent | None]:
        """The next event; None where the server says that none follows."""
        while True:
            while self._heard:
                event = self._heard.popleft()
                self._position = event.id or self._position
                if event.kind == _END:
                    yield from self.leave()
                    return None
                if event.kind == _JOB:
                    return _read(self._call, event)
            if self._is_open and self._may_outlast():
                yield from self.leave()
            if not self._is_open:
                yield from self._open()
            yield from self._hear()

    def _may_outlast(self) -> bool:
        """Whether its silence would be borne for much longer than there is time: what is borne is
        said when a stream is opened. To open one for each moment of the way would never end.
        """
        left_s = self._left_s()
        return left_s <= 0 or self._silence_s - left_s > _LATE_S

    def _hear(self) -> Flow[None]:
        reply = yield Hear()
        if reply.chunk:
            self._answered, self._tries = self._clock(), 0
            try:
                self._heard.extend(self._decoder.feed(reply.chunk))
            except TooLong as error:
                raise ServerError(f"{self._call.path}: {error}", "") from error
            if not self._heard:
                # Whoever is told of nothing for long goes on from where that was, too.
                self._position = self._decoder.last_id or self._position
            return
        yield from self.leave()
        if self._left_s() > 0:
            yield from self._pause(reply)

    def _open(self) -> Flow[None]:
        while True:
            if (left_s := self._left_s()) <= 0:
                raise OutOfTime
            self._silence_s = min(SILENCE_S, left_s)
            headers = {"Accept": STREAM}
            if self._position:
                headers[LAST_ID] = self._position
            reply = yield Listen(self._call, headers, self._silence_s)
            if (yield from self._opened(reply)):
                return

    def _opened(self, reply: Reply) -> Flow[bool]:
        response = reply.response
        if self._or_else and response is not None and response.status_code == REFUSED:
            raise NoStream
        if response is None or response.status_code in RETRIED_STATUSES:
            yield from self._pause(reply)
            return False
        self._answered = self._clock()
        if response.status_code == _EXPIRED and self._position:
            told = error_of(self._call, response)
            self._position = ""
            self._on_gap(f"{told}; {NOW_ON}")
            return False
        if response.status_code in _WITHOUT:
            raise NoStream
        if not response.is_success:
            raise error_of(self._call, response)
        if not response.headers.get("content-type", "").startswith(STREAM):
            yield Leave()
            raise NoStream
        retry_s = self._decoder.retry_s
        self._decoder = Decoder(self._position)
        self._decoder.retry_s = retry_s
        self._is_open = True
        return True

    def leave(self) -> Flow[None]:
        """Closes the stream. What comes next is heard in another one."""
        self._is_open = False
        self._heard.clear()
        yield Leave()

    def _pause(self, reply: Reply) -> Flow[None]:
        """Before the next try. Raises Unavailable when there were enough."""
        self._tries += 1
        if self._clock() - self._answered >= self._outage_s:
            if reply.response is not None:
                raise error_of(self._call, reply.response)
            raise unreachable(self._call, reply.failure) from reply.failure
        pause_s = self._policy.pause_s(self._tries, reply.response)
        if self._tries == 1:
            # A server that ends has many readers, who should not all come back at once.
            pause_s = max(pause_s, self._policy.rng() * self._decoder.retry_s)
        elif self._policy.on_pause is not None:
            self._policy.on_pause(pause_s, reply.response)
        yield Pause(min(pause_s, max(self._left_s(), 0.0)))

    def _left_s(self) -> float:
        return self._until - self._clock()


def _read(call: Call, event: ServerEvent) -> JobEvent:
    try:
        told = JobEvent.model_validate_json(event.data)
    except ValidationError as error:
        text = f"{call.path}: what was told is no event of a queue operator"
        raise ServerError(text, "") from error
    return told.model_copy(update={"position": event.id})


def _position(after: str | None) -> str:
    if after is not None and not (after.isascii() and after.isprintable()):
        raise InvalidArgument("after", "must be the position of an event")
    return after or ""


def _warn(text: str) -> None:
    logger.warning("%s", text)
