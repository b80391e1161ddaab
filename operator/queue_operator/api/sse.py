"""Server-sent events: the text of a stream, its heartbeats, and its end."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import Final

from queue_operator.api import schemas
from queue_operator.domain.errors import Forbidden, Unauthenticated, Unavailable
from queue_operator.queue.followers import Ending, Follower, News
from queue_operator.queue.hub import EventHub

HEARTBEAT_S: Final = 15.0
REVIEW_S: Final = 30.0
"""How often it is asked whether a caller may still read what is told."""
RETRY_MS: Final = 1000
HEADERS: Final = {
    # Neither a cache nor a proxy is to keep any of it back.
    "Cache-Control": "no-cache, no-transform",
    "X-Accel-Buffering": "no",
}
_TOLD: Final = {Ending.OVER: b"event: end\ndata: {}\n\n", Ending.SLOW: b"event: slow\ndata: {}\n\n"}
_CHUNK: Final = 200
"""So many events are written at once."""


async def frames(
    hub: EventHub,
    follower: Follower,
    review: Callable[[], Awaitable[None]],
    *,
    heartbeat_s: float = HEARTBEAT_S,
    review_s: float = REVIEW_S,
    monotonic: Callable[[], float] = time.monotonic,
) -> AsyncIterator[bytes]:
    """The body of the answer. Each heartbeat tells the position too, so that one who is told of
    nothing for long does not come back with an old one.
    """
    due_s = monotonic() + review_s
    yield f"retry: {RETRY_MS}\n".encode() + _position(hub, follower)
    while True:
        batch = await follower.next(heartbeat_s)
        if monotonic() >= due_s:
            due_s = monotonic() + review_s
            if not await _may(review):
                return
        for chunk in _chunks(batch.news):
            yield chunk
        if batch.ending is not None:
            yield _TOLD.get(batch.ending, b"")
            return
        if not batch.news:
            yield b":\n" + _position(hub, follower)


async def _may(review: Callable[[], Awaitable[None]]) -> bool:
    try:
        await review()
    except (Unauthenticated, Forbidden):
        return False
    except Unavailable:
        # Who decides is away; what has been decided holds meanwhile.
        return True
    return True


def _position(hub: EventHub, follower: Follower) -> bytes:
    """An id without data: no event, but the place where to go on. Not while something waits."""
    if follower.buffer:
        return b"\n"
    return f"id: {hub.position_of(follower)}\n\n".encode()


def _chunks(news: Sequence[News]) -> Iterator[bytes]:
    for first in range(0, len(news), _CHUNK):
        yield b"".join(map(text_of, news[first : first + _CHUNK]))


def text_of(news: News) -> bytes:
    """Written once for all to whom it is told."""
    if not news.text:
        told = schemas.JobEvent(
            job_id=news.job_id,
            namespace=news.kind.namespace,
            type=news.kind.type,
            status=news.status,
            state=news.state,
            event=news.event,
            attempt=news.attempt,
            at=news.at,
        )
        news.text = f"id: {news.id}\nevent: job\ndata: {told.model_dump_json()}\n\n".encode()
    return news.text
