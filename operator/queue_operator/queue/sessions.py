"""The rows that show connected workers to the controller and to other replicas, and what those
say about the streams of this process.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager

from queue_operator.backends.lost_workers import Loss
from queue_operator.backends.protocol import (
    Backend,
    SessionNews,
    SessionRoll,
    Sessions,
    WorkerSession,
)
from queue_operator.domain.errors import Forbidden
from queue_operator.queue.protocol import EndReason, StreamSpec
from queue_operator.queue.stream import JobStream

_Changing = tuple[StreamSpec, int, bool, str, int]
"""What a row is made of: specification, busy slots, draining, connection, followed order."""


class Opening:
    """The assignees for whom a stream is being opened."""

    def __init__(self) -> None:
        self._assignees: Counter[str] = Counter()

    def __contains__(self, assignee_id: str) -> bool:
        return self._assignees[assignee_id] > 0

    @contextmanager
    def of(self, assignee_id: str) -> Iterator[None]:
        self._assignees[assignee_id] += 1
        try:
            yield
        finally:
            self._assignees[assignee_id] -= 1
            # Counters keep what is at nothing.
            self._assignees += Counter()


def loss_of(stream: JobStream, left: int = 0) -> Loss | None:
    """Of a stream that ended and left its worker with so many jobs. None where the worker said
    goodbye, and where it drained and held nothing more.
    """
    jobs = left + stream.slots.taken
    if stream.end_reason is not EndReason.BROKEN or (stream.draining and not jobs):
        return None
    return Loss(session_id=stream.spec.assignee_id, jobs=jobs)


class SessionRows:
    """Written and read where the store keeps sessions. Library streams have none.

    `disconnected` hears of the assignees whose jobs were taken from them.
    """

    def __init__(self, backend: Backend, replica: str, disconnected: Callable[[str], None]) -> None:
        self._backend = backend
        self._rows = backend if isinstance(backend, Sessions) else None
        self._replica = replica
        self._disconnected = disconnected
        # Most sessions are as they were when they were last looked at.
        self._shown: dict[JobStream, tuple[_Changing, WorkerSession]] = {}
        self._known: list[WorkerSession] = []
        self._roll: SessionRoll | None = None

    async def open(self, stream: JobStream) -> str:
        """From now on the stream is the one that has the session, and it follows the order that
        the session was given. Gives the connection that had it before, as far as the store keeps
        sessions. Raises Forbidden if the session is another worker's.
        """
        if self._rows is None:
            return ""
        news = await self._rows.open_session(self._row(stream))
        stream.follow(news.order, news.order_number)
        return news.previous

    async def tend(self, streams: Collection[JobStream]) -> None:
        """Shows that the sessions are open here and what their streams do, and follows what
        others wrote to them. While nothing changes on either side, one statement says all that
        in a few words, whatever their number.
        """
        if self._rows is None:
            return
        rows = [self._row(stream) for stream in streams if not stream.renewed_by_queue]
        if len(self._shown) > len(rows):
            self._shown = {
                stream: self._shown[stream] for stream in streams if stream in self._shown
            }
        if rows and not await self._keep(self._rows, rows):
            self._known, self._roll = [], None
            await self._rows.touch_sessions(rows)
            if not await self.follow(streams):
                self._known = rows

    async def _keep(self, stored: Sessions, rows: list[WorkerSession]) -> bool:
        if rows != self._known:
            return False
        if self._roll is None:
            self._roll = SessionRoll.of(self._replica, rows)
        return await stored.keep_sessions(self._roll)

    async def close(self, session_ids: Sequence[str]) -> None:
        if session_ids and self._rows is not None:
            await self._rows.close_sessions(session_ids, replica=self._replica)

    async def lose(self, losses: Sequence[Loss]) -> None:
        """Sessions that broke: whoever watches is told that their workers are lost."""
        if losses and self._rows is not None:
            await self._rows.lose_sessions(losses, replica=self._replica)

    async def follow(self, streams: Collection[JobStream]) -> bool:
        """Streams do what the rows of their sessions say: one that another connection has ends,
        as does one whose QueueWorker was deleted. True if there was any news.
        """
        by_id = {s.spec.assignee_id: s for s in streams if not s.renewed_by_queue}
        if not by_id or self._rows is None:
            return False
        found = await self._rows.session_news([self._row(stream) for stream in by_id.values()])
        await asyncio.gather(*(self._take(by_id[news.session_id], news) for news in found))
        return bool(found)

    async def _take(self, stream: JobStream, news: SessionNews) -> None:
        if stream.end_reason is not None:
            return
        if news.connection is None:
            await self._open_again(stream)
        elif news.connection != stream.connection:
            await stream.close(EndReason.REPLACED)
        elif news.order.ended:
            await self._disconnect(stream)
        else:
            stream.follow(news.order, news.order_number)

    async def _open_again(self, stream: JobStream) -> None:
        """The row was lost, as when this process was cut off for long."""
        try:
            await self.open(stream)
        except Forbidden:
            await stream.close(EndReason.REPLACED)

    async def _disconnect(self, stream: JobStream) -> None:
        await stream.close(EndReason.DISCONNECTED)
        await self._backend.mark_worker_unresponsive(stream.spec.assignee_id)
        self._disconnected(stream.spec.assignee_id)

    def _row(self, stream: JobStream) -> WorkerSession:
        now = (
            stream.declared,
            stream.slots.busy,
            stream.draining,
            stream.connection,
            stream.followed,
        )
        shown = self._shown.get(stream)
        if shown is None or shown[0] != now:
            shown = self._shown[stream] = now, self._made_row(stream)
        return shown[1]

    def _made_row(self, stream: JobStream) -> WorkerSession:
        declared = stream.declared
        return WorkerSession(
            session_id=declared.assignee_id,
            namespace=declared.namespace,
            worker_name=declared.worker_name,
            pod_uid=declared.pod_uid,
            host=declared.host,
            replica=self._replica,
            tags=declared.tags,
            types=frozenset(handler.type for handler in declared.types),
            capacity=declared.capacity,
            busy=stream.slots.busy,
            draining=stream.draining,
            version=declared.version,
            connection=stream.connection,
            followed=stream.followed,
        )
