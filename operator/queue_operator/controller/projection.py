"""From the database's feed of changes to the status of the resources."""

import asyncio
import logging
from collections.abc import Collection, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Final

from queue_operator.backends.protocol import MirrorEntry
from queue_operator.controller.backlog import Backlog, Write
from queue_operator.controller.kube import ApiError, KubeClient, object_path
from queue_operator.controller.ownership import Ownership
from queue_operator.controller.pacing import TokenBucket, backoff_s
from queue_operator.controller.ports import ControllerBackend, ControllerStats
from queue_operator.controller.recorder import EventRecorder
from queue_operator.controller.sightings import Sightings
from queue_operator.controller.waiting import wait_for_event
from queue_operator.crd.conditions import status_of
from queue_operator.crd.manifest import TRANSITION_MESSAGE
from queue_operator.crd.names import QUEUE_JOB
from queue_operator.crd.v1alpha1 import QueueJobStatus
from queue_operator.domain.clock import Clock
from queue_operator.domain.errors import Unavailable
from queue_operator.observing import about

logger = logging.getLogger(__name__)

CONCURRENT_WRITES: Final = 32
PULL_BATCH: Final = 500
FULL_BACKLOG: Final = 5_000
"""With so many statuses waiting here the rest can wait in the database, where they coalesce."""
_POLL_S: Final = 1.0
_PULL_PAUSE_S: Final = 0.05
_THROTTLE_S: Final = 1.0
_SETTLED: Final = frozenset({HTTPStatus.NOT_FOUND, HTTPStatus.UNPROCESSABLE_ENTITY})


class StatusWriter:
    """Reads the feed, writes statuses at a bounded rate, acknowledges what has arrived.

    Nothing is lost when it dies: what was not acknowledged is read again.
    """

    def __init__(
        self,
        backend: ControllerBackend,
        kube: KubeClient,
        sightings: Sightings,
        ownership: Ownership,
        *,
        cluster_uid: str,
        namespaces: Collection[str],
        rate_per_s: float,
        clock: Clock,
        stats: ControllerStats,
        recorder: EventRecorder | None = None,
    ) -> None:
        self._backend = backend
        self._kube = kube
        self._sightings = sightings
        self._ownership = ownership
        self._cluster_uid = cluster_uid
        self._namespaces = frozenset(namespaces)
        self._clock = clock
        self._stats = stats
        self._recorder = recorder
        self._backlog = Backlog()
        self._bucket = TokenBucket(rate_per_s, clock)
        self._slots = asyncio.Semaphore(CONCURRENT_WRITES)
        self._changed = asyncio.Event()
        self._news = asyncio.Event()
        self._feed_wake = asyncio.Event()
        self._others = 0
        self._poll_at = 0.0
        self._is_failing = False

    def notice(self) -> None:
        """The feed has something new."""
        self._news.set()
        self._feed_wake.set()

    def put(self, write: Write) -> None:
        """Writes a status that comes from no feed, such as a refusal."""
        self._backlog.put(write, self._clock.monotonic())
        self._changed.set()
        self._show()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._feed(), name="status feed")
            group.create_task(self._dispatch(group), name="status dispatch")

    # From the database

    async def _feed(self) -> None:
        failures = 0
        while True:
            try:
                await self._acknowledge()
                if self._is_pull_due():
                    await self._pull()
                failures = 0
            except Unavailable as error:
                failures += 1
                self._stats.store_retries += 1
                if failures == 1:
                    logger.warning("statuses wait for the database: %s", error)
                await self._clock.sleep(backoff_s(failures))
                continue
            await self._clock.sleep(_PULL_PAUSE_S)
            await wait_for_event(self._feed_wake, _POLL_S)

    async def _acknowledge(self) -> None:
        delivered = self._backlog.delivered()
        if delivered:
            await self._backend.acknowledge_mirrors(delivered)
            self._backlog.acknowledged(delivered)

    def _is_pull_due(self) -> bool:
        # Also woken to acknowledge, which is no reason to read the feed again.
        return self._news.is_set() or self._clock.monotonic() >= self._poll_at

    async def _pull(self) -> None:
        self._poll_at = self._clock.monotonic() + _POLL_S
        if len(self._backlog) >= FULL_BACKLOG:
            return
        self._news.clear()
        # What waits here is still in the feed, ahead of what is new.
        limit = len(self._backlog) + self._others + PULL_BATCH
        entries = await self._backend.pending_mirrors(limit)
        ours = [entry for entry in entries if self._is_ours(entry)]
        self._others = len(entries) - len(ours)
        news = await self._offer(ours)
        if news:
            self._changed.set()
        if news >= PULL_BATCH // 4 or len(self._backlog.delivered()) >= PULL_BATCH:
            self.notice()
        self._show()

    def _show(self) -> None:
        figures = self._stats.figures
        figures.status_backlog = len(self._backlog)
        figures.status_since_s = self._backlog.oldest_since() or 0.0

    async def _offer(self, entries: Sequence[MirrorEntry]) -> int:
        """How many are news. Where another queue has taken a namespace over, resources tell of its
        jobs, and no more of ours.
        """
        with suppress(Unavailable):
            # Without an answer, what is known of the namespaces has to do.
            await self._ownership.serve({entry.job.namespace for entry in entries})
        now, news = self._clock.monotonic(), 0
        for entry in entries:
            if self._ownership.is_anothers(entry.job.namespace):
                self._backlog.drop(entry)
            else:
                news += self._backlog.offer(entry, now)
        return news

    def _is_ours(self, entry: MirrorEntry) -> bool:
        resource = entry.job.resource
        if resource is None:
            return True
        if resource.cluster_uid != self._cluster_uid:
            return False
        return not self._namespaces or entry.job.namespace in self._namespaces

    # To the API server

    async def _dispatch(self, group: asyncio.TaskGroup) -> None:
        while True:
            await self._slots.acquire()
            group.create_task(self._send_and_release(await self._next()))

    async def _next(self) -> Write:
        while True:
            due, now = self._backlog.next_due(), self._clock.monotonic()
            if due is not None and due <= now:
                await self._bucket.take()
                # Chosen after the wait, so that it is the newest and the most urgent.
                if write := self._backlog.take(self._clock.monotonic()):
                    return write
            else:
                await wait_for_event(self._changed, None if due is None else due - now)

    async def _send_and_release(self, write: Write) -> None:
        try:
            await self._send(write)
        finally:
            self._slots.release()
            self._changed.set()
            self._feed_wake.set()
            self._show()

    async def _send(self, write: Write) -> None:
        path = object_path(QUEUE_JOB.plural, write.namespace, write.resource.name)
        status = self._status(write)
        document = status.model_dump(mode="json", by_alias=True, exclude_none=True)
        try:
            await self._kube.replace_status(path, write.uid, document)
        except ApiError as error:
            self._refused(write, error)
        except Unavailable as error:
            self._retry(write, backoff_s(write.failures + 1), error)
        else:
            self._stats.figures.status_written += 1
            self._is_failing = False
            self._bucket.succeeded()
            if write.final:
                self._sightings.finished(write.uid)
            self._backlog.done(write)
            if self._recorder is not None:
                self._recorder.record(write, status)

    def _status(self, write: Write) -> QueueJobStatus:
        status = write.status
        if write.job is not None:
            seen = self._sightings.generation(write.uid)
            generation = max(seen, write.resource.generation)
            status = status_of(write.job, datetime.now(UTC), generation)
        assert status is not None  # noqa: S101  (a write has a job or a status)
        return status

    def _refused(self, write: Write, error: ApiError) -> None:
        if error.status in _SETTLED:
            self._settle(write, error)
        elif error.retryable:
            self._stats.status_throttled += 1
            wait_s = error.retry_after_s or _THROTTLE_S
            self._bucket.throttled(wait_s)
            self._retry(write, wait_s, error)
        else:
            self._retry(write, backoff_s(write.failures + 1), error)

    def _settle(self, write: Write, error: ApiError) -> None:
        """The resource will never show this status: there is nothing left to do."""
        if TRANSITION_MESSAGE in error.message:
            self._stats.figures.status_superseded += 1
        elif error.status == HTTPStatus.NOT_FOUND or not error.causes:
            # No causes: the patch's test of the uid failed, another object has the name.
            self._stats.figures.status_gone += 1
        else:
            self._stats.figures.status_refused += 1
            logger.error(
                "status of %s/%s: %s",
                write.namespace,
                write.resource.name,
                error,
                extra=about(write.namespace, write.uid),
            )
        self._backlog.done(write)

    def _retry(self, write: Write, wait_s: float, error: Exception) -> None:
        self._stats.status_retried += 1
        if not self._is_failing:
            # What keeps one from being written keeps all of them, more often than not.
            self._is_failing = True
            logger.warning(
                "statuses are tried again, that of %s/%s first: %s",
                write.namespace,
                write.resource.name,
                error,
                extra=about(write.namespace, write.uid),
            )
        self._backlog.failed(write, self._clock.monotonic() + wait_s)
