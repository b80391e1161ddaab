"""What a replica does four times a second for all who listen: it makes delayed jobs due, just in
time, and learns from the versions of topics what others announced.
"""

import asyncio
import json
import logging
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

import psycopg
from psycopg.rows import TupleRow

from queue_operator.backends.ending import end_tasks
from queue_operator.backends.news import EVERYTHING, Inbox, News, Topic
from queue_operator.backends.postgres.arrivals import PARTS, Arrivals
from queue_operator.backends.postgres.connection import Pool, borrowed
from queue_operator.backends.postgres.driver_errors import TookTooLong
from queue_operator.backends.postgres.ear import Ear
from queue_operator.backends.postgres.lanes import Lanes
from queue_operator.backends.postgres.one_loop import check_loop
from queue_operator.backends.postgres.signals import Announcer, Versions
from queue_operator.backends.postgres.staging import NOWHERE, Staging, is_full
from queue_operator.backends.sql import load
from queue_operator.domain.errors import QueueError

_PULSE: Final = load(__package__, "pulse", **PARTS)
PULSE_S: Final = 0.25
_LEAST_S: Final = 0.01
# Of a row of its statement, where that begins which is not of arrivals.
_OWN: Final = 10
_TOPICS: Final = [topic.value for topic in Topic]

Sleep = Callable[[float], Awaitable[None]]

logger = logging.getLogger(__name__)


class _Beat(NamedTuple):
    """What one pulse found; `next_due_s` is None when no job waits for a time."""

    staged: list[int]
    next_due_s: float | None
    versions: Versions


class Pulse:
    """Beats while somebody listens. `sleep` paces it.

    Every listener gets everything first, since nobody knows what was missed before, and again
    after the listening connection was lost or the store could not be read.
    """

    def __init__(
        self,
        dsn: str | None,
        pool: Pool,
        lanes: Lanes,
        arrivals: Arrivals,
        staging: Staging,
        announcer: Announcer,
        *,
        sleep: Sleep = asyncio.sleep,
        rng: Callable[[], float] = random.random,
    ) -> None:
        self._dsn = dsn
        self._pool = pool
        self._lanes = lanes
        self._arrivals = arrivals
        self._staging = staging
        self._announcer = announcer
        self._sleep = sleep
        self._rng = rng
        self._inboxes: set[Inbox] = set()
        self._tasks: list[asyncio.Task[None]] = []
        self._hurry = asyncio.Event()
        self._soonest_s = PULSE_S
        self._lost = True
        self._failing = False
        self._based = False

    async def listen(self) -> AsyncGenerator[News, None]:
        check_loop(self._pool)
        inbox = Inbox()
        if self._based:
            inbox.put(EVERYTHING)
        self._inboxes.add(inbox)
        if not self._tasks:
            self._tasks = [asyncio.create_task(self._run(), name="pulse of the store")]
        try:
            while True:
                yield await inbox.take()
        finally:
            self._inboxes.discard(inbox)
            if not self._inboxes:
                await self.aclose()

    async def aclose(self) -> None:
        tasks, self._tasks = self._tasks, []
        await end_tasks(tasks)
        self._lost, self._based = True, False

    @property
    def beats(self) -> bool:
        """Whether delayed jobs are made due without a call."""
        return bool(self._tasks)

    def hear(self, news: News) -> None:
        """For all who listen."""
        # Before the first beat is over everything will be news.
        if self._based:
            for inbox in self._inboxes:
                inbox.put(news)

    def expect(self, delay_s: float) -> None:
        """A job becomes due then: earlier than the next beat, maybe."""
        if delay_s < PULSE_S:
            self._soonest_s = min(self._soonest_s, max(delay_s, _LEAST_S))
            self._hurry.set()

    async def _run(self) -> None:
        if self._dsn is None:
            await self._beat_for_ever()
            return
        ear = Ear(self._dsn, self._notice, self._connected, self._rng)
        hearing = asyncio.create_task(ear.listen(), name="listening for notifications")
        try:
            # What comes first is everything, once, and not again when the line is there.
            await _either(ear.tried, self._sleep(PULSE_S))
            await self._beat_for_ever()
        finally:
            await end_tasks([hearing])

    async def _beat_for_ever(self) -> None:
        while True:
            self._hurry.clear()
            self._soonest_s = PULSE_S
            await _either(self._hurry, self._sleep(await self._turn()))
            if self._hurry.is_set():
                await self._sleep(self._soonest_s)

    async def _turn(self) -> float:
        """One beat; how long to wait for the next."""
        try:
            if self._staging.is_behind:
                # Each piece may take long, and no claim is to wait for it. After one that takes too
                # long comes a smaller one.
                with suppress(TookTooLong):
                    self._tell_staged(await self._staging.stage())
            async with self._announcer.versions_lock:
                beat = await self._beat()
                self._learn(beat.versions)
        except (QueueError, psycopg.Error) as error:
            if not self._failing:
                logger.warning("reading the signals failed, trying again: %s", error)
            self._failing = self._lost = True
            if isinstance(error, TookTooLong):
                # A smaller piece of what is dead can be looked through at once.
                return 0.0
            return PULSE_S
        except Exception:
            # Nobody else would notice that the pulse has ended.
            if not self._failing:
                logger.exception("reading the signals failed, trying again")
            self._failing = self._lost = True
            return PULSE_S
        self._failing = False
        self._tell_staged(beat.staged)
        if is_full(beat.staged) or self._staging.is_behind:
            return 0.0
        due_s = PULSE_S if beat.next_due_s is None else beat.next_due_s
        return min(max(due_s, _LEAST_S), PULSE_S)

    def _tell_staged(self, lanes: Sequence[int]) -> None:
        if lanes:
            # Also for claims of this process, which reads what it stored itself.
            self._arrivals.hint()
            self._announcer.announce_ready(self._lanes.kinds(lanes))

    async def _beat(self) -> _Beat:
        async with self._arrivals.lock:
            if not self._arrivals.has_begun:
                await self._arrivals.read()
            rows = await self._read()
        staged, versions, _, next_due_s = rows[0][_OWN:]
        return _Beat(staged, next_due_s, {Topic(name): n for name, n in versions.items()})

    async def _read(self) -> list[TupleRow]:
        """Makes jobs due, and takes note of what arrived."""
        look, since = None if self._staging.is_behind else self._staging.ask(), None
        version = self._lanes.gate.version
        try:
            where = look.parameters if look else NOWHERE
            parameters = {"topics": _TOPICS, **self._arrivals.since(), **where}
            async with borrowed(self._pool) as connection:
                cursor = await connection.execute(_PULSE, parameters, binary=True)
                rows = await cursor.fetchall()
            since = rows[0][_OWN + 2]
        finally:
            if look:
                self._staging.leave(look, since)
        if not await self._arrivals.take(rows, version):
            self._lost = True
        return rows

    def _learn(self, versions: Versions) -> None:
        seen = self._announcer.seen
        if not self._lost:
            self._tell(seen.note(versions))
            return
        seen.rebase(versions)
        self._lost, self._based = False, True
        self._tell(EVERYTHING)

    def _notice(self, payload: str) -> None:
        if not self._based:
            return
        try:
            told = json.loads(payload)
            news = self._announcer.seen.notice(told)
        except (ValueError, KeyError, TypeError, AttributeError):
            # Another version's, or a stranger's: what is behind it is in the table.
            logger.warning("ignoring a notification that makes no sense: %.200s", payload)
            self.expect(0.0)
            return
        if Topic.PAUSE in news:
            # The next beat reads what is paused now.
            self.expect(0.0)
        self._tell(news)

    def resumed(self) -> None:
        """Somebody read that something is paused no more."""
        self._tell({Topic.READY: None})

    def _tell(self, news: News) -> None:
        if Topic.READY in news:
            self._arrivals.hint()
        self.hear(news)

    def _connected(self) -> None:
        self._lost = True
        self.expect(0.0)


async def _either(event: asyncio.Event, sleeping: Awaitable[None]) -> None:
    """Waits until one of them is over."""
    waiting = asyncio.ensure_future(event.wait())
    pause = asyncio.ensure_future(sleeping)
    try:
        await asyncio.wait((waiting, pause), return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
        pause.cancel()
