"""Wake-ups between processes: a version per topic, a sequence, and a notification as a hint.

The versions are the truth and are polled, so nothing depends on notifications arriving. They
are sent in a transaction of their own, a hundred a second at most: a commit that notifies
takes a lock of the whole server, which would serialise every submission. What this process
announces, its own listeners hear at once, and not again when it comes back from the server.
"""

import asyncio
import json
import logging
import random
import secrets
from collections.abc import Callable, Mapping
from typing import Any, Final

import psycopg

from queue_operator.backends.news import Kind, Kinds, News, Topic, merged
from queue_operator.backends.postgres.connection import Pool, borrowed
from queue_operator.backends.sql import load
from queue_operator.domain.errors import QueueError
from queue_operator.domain.retry import Backoff, BackoffStrategy, delay_s

_ANNOUNCE: Final = load(__package__, "signal_announce")
_SPACING_S: Final = 0.01
_MOST_BYTES: Final = 4000
"""A notification holds 8,000; kinds that need more than this are not named."""
MOST_OWN: Final = 1000
"""Versions of a topic that a process remembers to have raised: it may never read what there is."""
RETRY: Final = Backoff(BackoffStrategy.EXPONENTIAL, initial_delay_s=0.1, max_delay_s=5.0)

Versions = Mapping[Topic, int]

logger = logging.getLogger(__name__)


class Announcer:
    """Announces topics in the background; those that come close together share a commit.

    `hear` gets each announcement at once: the listeners of this process need no signal.
    """

    def __init__(
        self,
        pool: Pool,
        *,
        rng: Callable[[], float] = random.random,
        hear: Callable[[News], None] | None = None,
    ) -> None:
        self._pool = pool
        self._rng = rng
        self._hear = hear
        self.seen = Seen(secrets.token_hex(8))
        # Held while versions are raised or read, so that each reader knows which are ours.
        self.versions_lock = asyncio.Lock()
        self._waiting: News = {}
        self._task: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()
        self._failures = 0

    def announce(self, *topics: Topic) -> None:
        """Never blocks and never fails: call it after the commit of what it tells about.

        After `aclose` it does nothing.
        """
        self._add(dict.fromkeys(topics))

    def announce_ready(self, kinds: Kinds) -> None:
        """As `announce(Topic.READY)`, for jobs of these kinds; nothing where there are none."""
        if kinds is None or kinds:
            self._add({Topic.READY: kinds})

    def _add(self, news: News) -> None:
        if self._closing.is_set():
            return
        if self._hear is not None:
            self._hear(news)
        self._waiting = merged(self._waiting, news)
        if self._waiting and self._task is None:
            self._task = asyncio.create_task(self._send_all())

    async def aclose(self) -> None:
        """Sends what is waiting, once; without success it is left to the others' polling."""
        self._closing.set()
        if self._task is not None:
            await self._task

    async def _send_all(self) -> None:
        """Sends at once after a quiet time, then at most once per spacing."""
        try:
            while self._waiting:
                await self._send()
                if self._failures and self._closing.is_set():
                    return
                failing = self._failures > 0
                await self._pause(
                    delay_s(RETRY, self._failures, self._rng) if failing else _SPACING_S
                )
        finally:
            self._task = None

    async def _send(self) -> None:
        async with self.versions_lock:
            news, self._waiting = self._waiting, {}
            try:
                raised = await self._raise(news)
            except (QueueError, psycopg.Error) as error:
                self._waiting = merged(news, self._waiting)
                self._failures += 1
                if self._failures == 1:
                    named = ", ".join(sorted(news))
                    logger.warning("announcing %s failed, trying again: %s", named, error)
                return
            self.seen.raise_own(raised)
            self._failures = 0

    async def _raise(self, news: News) -> Versions:
        told = {"origin": self.seen.origin} | _encoded(news.get(Topic.READY))
        parameters = {"topics": sorted(news), "told": json.dumps(told)}
        async with borrowed(self._pool) as connection:
            rows = await (await connection.execute(_ANNOUNCE, parameters)).fetchall()
        return {Topic(topic): version for topic, version in rows[0][0].items()}

    async def _pause(self, wait_s: float) -> None:
        try:
            async with asyncio.timeout(wait_s):
                await self._closing.wait()
        except TimeoutError:
            pass


class Seen:
    """The versions told about so far, and of those above them the newest that this process raised;
    where it raised more, the others are taken for somebody else's.
    """

    def __init__(self, origin: str) -> None:
        self.origin = origin
        self._versions: dict[Topic, int] = {}
        # Each in the order in which they were raised.
        self._own: dict[Topic, dict[int, None]] = {}

    def raise_own(self, versions: Versions) -> None:
        for topic, version in versions.items():
            if version > self._versions.get(topic, 0):
                own = self._own.setdefault(topic, {})
                own[version] = None
                if len(own) > MOST_OWN:
                    del own[next(iter(own))]

    def note(self, versions: Versions) -> News:
        """News from the sequences: of what others raised nobody knows the kinds."""
        risen = [t for t in versions if self._unexplained(t, versions[t])]
        self._advance(versions)
        return dict.fromkeys(risen)

    def notice(self, told: Mapping[str, Any]) -> News:
        """News from a notification. A late one may be behind what the sequences said."""
        versions = {Topic(topic): version for topic, version in told["versions"].items()}
        if told["origin"] == self.origin:
            self.raise_own(versions)
            return self.note(versions)
        news: dict[Topic, Kinds] = {}
        for topic, version in versions.items():
            missing = self._unexplained(topic, version)
            if missing:
                known = topic is Topic.READY and missing == 1
                news[topic] = _decoded(told) if known else None
        self._advance(versions)
        return news

    def rebase(self, versions: Versions) -> None:
        """The versions may be lower than before: a server that crashed, or a standby that took
        over, has lost the last of them.
        """
        self._versions = dict(versions)
        self._own = {}

    def _unexplained(self, topic: Topic, version: int) -> int:
        """How many rises up to this version were neither seen nor our own."""
        risen = version - self._versions.get(topic, 0)
        own = sum(1 for raised in self._own.get(topic, ()) if raised <= version)
        return max(risen - own, 0)

    def _advance(self, versions: Versions) -> None:
        for topic, version in versions.items():
            if version > self._versions.get(topic, 0):
                self._versions[topic] = version
                own = self._own.get(topic, {})
                self._own[topic] = {raised: None for raised in own if raised > version}


def _encoded(kinds: Kinds) -> dict[str, Any]:
    """Nothing where any kind is meant, or too many to name."""
    if not kinds:
        return {}
    named = [[kind.namespace, kind.type, sorted(kind.tags)] for kind in kinds]
    return {"kinds": named} if len(json.dumps(named)) <= _MOST_BYTES else {}


def _decoded(told: Mapping[str, Any]) -> Kinds:
    if "kinds" not in told:
        return None
    return frozenset(Kind(space, type_, frozenset(tags)) for space, type_, tags in told["kinds"])
