"""Trying again the QueueJobs whose namespace was over its quota."""

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

from queue_operator.controller.deferred import LEAST_PAUSE_S, Deferred, DeferredJob
from queue_operator.controller.intake import CONCURRENT_LOOKUPS, Intake
from queue_operator.controller.kube import ApiError, KubeClient, object_path
from queue_operator.controller.pacing import backoff_s
from queue_operator.crd.names import QUEUE_JOB
from queue_operator.domain.clock import Clock
from queue_operator.domain.errors import QuotaExceeded, Unavailable
from queue_operator.queue.quotas import Quotas

logger = logging.getLogger(__name__)

ROUND: Final = 500
"""Objects read for one transaction, whichever namespaces they are of."""


class Readmission:
    """Asks the quotas for many namespaces at once, and reads only objects that may be taken in."""

    def __init__(
        self, deferred: Deferred, quotas: Quotas, intake: Intake, kube: KubeClient, clock: Clock
    ) -> None:
        self._deferred = deferred
        self._quotas = quotas
        self._intake = intake
        self._kube = kube
        self._clock = clock
        self._reading = asyncio.Semaphore(CONCURRENT_LOOKUPS)

    async def run(self) -> None:
        failures = 0
        while True:
            await self._deferred.wait()
            await self._clock.sleep(backoff_s(failures) if failures else LEAST_PAUSE_S)
            try:
                await self.once()
            except Unavailable as error:
                failures += 1
                if failures == 1:
                    logger.warning("QueueJobs over their quota wait longer: %s", error)
            else:
                failures = 0

    async def once(self) -> None:
        """Every namespace that is due, until it has no more room. Raises Unavailable while the
        database is away; nothing is lost then.
        """
        due = self._deferred.due(self._clock.monotonic())
        while due:
            due = await self._round(due)

    async def _round(self, due: Sequence[str]) -> list[str]:
        """Gives the namespaces that may have room for more."""
        room = await self._quotas.room(due)
        now = self._clock.monotonic()
        chosen: dict[str, list[DeferredJob]] = {}
        left = ROUND
        for namespace in due:
            if left and (first := self._deferred.first(namespace, room.get(namespace))):
                chosen[namespace] = first[:left]
                left -= len(chosen[namespace])
            elif left:
                self._deferred.put_off(namespace, None, now)
        refused = await self._try(chosen)
        for namespace in chosen:
            if namespace in refused:
                self._deferred.put_off(namespace, refused[namespace], self._clock.monotonic())
            else:
                self._deferred.went_in(namespace)
        # Those that had no turn come first.
        rest = [name for name in due if name not in chosen]
        again = [name for name in chosen if name not in refused]
        return [name for name in (*rest, *again) if self._deferred.is_due(name, now)]

    async def _try(
        self, chosen: Mapping[str, Sequence[DeferredJob]]
    ) -> dict[str, QuotaExceeded | None]:
        """Gives the namespaces that have no room for more, and the quota that is in the way, and
        those of which nothing can be read.
        """
        jobs = [job for first in chosen.values() for job in first]
        found = await asyncio.gather(*(self._body(job) for job in jobs))
        failed = [
            (job, one) for job, one in zip(jobs, found, strict=True) if isinstance(one, Exception)
        ]
        if failed:
            logger.warning(
                "%d QueueJobs over their quota wait longer: %s", len(failed), failed[0][1]
            )
        for job, _ in failed:
            self._deferred.move_to_end(job)
        unread = Counter(job.namespace for job, _ in failed)
        stopped: dict[str, QuotaExceeded | None] = {
            name: None for name, count in unread.items() if count == len(chosen[name])
        }
        refused = await self._intake.try_again([one for one in found if isinstance(one, dict)])
        return stopped | {job.namespace: refused[job.uid] for job in jobs if job.uid in refused}

    async def _body(self, job: DeferredJob) -> dict[str, Any] | Exception | None:
        """The object as it is now. One that is gone, or going, is forgotten."""
        path = object_path(QUEUE_JOB.plural, job.namespace, job.name)
        body: dict[str, Any] | None = None
        async with self._reading:
            try:
                body = await self._kube.get(path)
            except ApiError as error:
                if error.status != HTTPStatus.NOT_FOUND:
                    return error
            except Unavailable as error:
                return error
        metadata = body["metadata"] if body is not None else {}
        if metadata.get("uid") == job.uid and "deletionTimestamp" not in metadata:
            return body
        self._intake.forget(job.uid)
        return None
