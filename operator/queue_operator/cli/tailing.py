"""The log of a job, line by line as it grows."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from queue_operator.client import AsyncQueueClient, JobEvent, Phase, ServerError
from queue_operator.client.models import AttemptLog
from queue_operator.domain.errors import Unavailable
from queue_operator.domain.running import LOG_LINES

LOOK_S: Final = 1.0
"""Between two looks while the job runs."""
_LATEST: Final = timedelta(seconds=10)
"""So long after a job has ended its last lines may come: nobody waits for them."""
_LOOKS: Final = 10
"""After the end. A handler that was given up may go on to log for ever."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Whose log, of one attempt or of all, and the newest `lines` of each to begin with."""

    job_id: str
    attempt: int | None = None
    lines: int | None = None
    namespace: str | None = None


class Tail:
    """Shows the log until the job has ended and all of it was read. It looks when something
    happens to the job, and every `look_s` seconds while it runs, as events do not tell of lines;
    each look asks only for what is new.
    """

    def __init__(
        self,
        queue: AsyncQueueClient,
        wanted: Wanted,
        show: Callable[[AttemptLog], None],
        *,
        look_s: float = LOOK_S,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._queue, self._wanted, self._show = queue, wanted, show
        self._look_s, self._now = look_s, now
        self._lines, self._cursor = wanted.lines, ""
        self._happened = asyncio.Event()
        self._last: JobEvent | None = None
        self._ran = False

    async def follow(self) -> None:
        """Raises Unavailable when the server was not heard for as long as `watch` bears."""
        listening = asyncio.create_task(self._listen())
        listening.add_done_callback(lambda _: self._happened.set())
        try:
            await self._look()
            has_ended = False
            while not has_ended:
                await self._until_something_happens()
                if has_ended := listening.done():
                    await listening
                try:
                    await self._look()
                except Unavailable:
                    # Whoever listens knows for how long a server may be away.
                    if has_ended:
                        raise
            await self._read_the_rest()
        finally:
            listening.cancel()

    async def _listen(self) -> None:
        wanted = self._wanted
        async for event in self._queue.watch(wanted.job_id, namespace=wanted.namespace):
            self._last = event
            self._ran = self._ran or event.status is Phase.RUNNING
            self._happened.set()

    async def _until_something_happens(self) -> None:
        runs = self._last is not None and self._last.status is Phase.RUNNING
        try:
            async with asyncio.timeout(self._look_s if runs else None):
                await self._happened.wait()
        except TimeoutError:
            pass
        self._happened.clear()

    async def _look(self) -> bool:
        """Whether there was something new."""
        wanted = self._wanted
        log = await self._queue.log(
            wanted.job_id,
            attempt=wanted.attempt,
            lines=self._lines,
            cursor=self._cursor,
            namespace=wanted.namespace,
        )
        if log.attempts and not log.next_cursor:
            raise ServerError("the server is older, and does not say what is new in a log", "")
        for one in log.attempts:
            self._show(one)
        self._lines, self._cursor = LOG_LINES, log.next_cursor
        return bool(log.attempts)

    async def _read_the_rest(self) -> None:
        for _ in range(_LOOKS if self._ran or self._ended_just_now() else 0):
            await asyncio.sleep(self._look_s)
            if not await self._look():
                return

    def _ended_just_now(self) -> bool:
        last = self._last
        return last is not None and last.at is not None and abs(self._now() - last.at) < _LATEST
