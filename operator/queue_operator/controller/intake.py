"""From watch events to jobs: a bounded queue, and one sink that stores in batches."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from http import HTTPStatus
from typing import Any, Final

from queue_operator.controller.backlog import Write
from queue_operator.controller.deferred import Deferred, DeferredJob
from queue_operator.controller.kube import METADATA_ONLY, ApiError, KubeClient, object_path
from queue_operator.controller.pacing import backoff_s
from queue_operator.controller.ports import ControllerBackend, ControllerStats
from queue_operator.controller.projection import StatusWriter
from queue_operator.controller.sightings import Sightings
from queue_operator.crd.conditions import over_quota, refused, tells_over_quota
from queue_operator.crd.names import QUEUE_JOB
from queue_operator.crd.submission import cancel_requested, to_job
from queue_operator.crd.v1alpha1 import QueueJobStatus
from queue_operator.domain.clock import Clock
from queue_operator.domain.errors import InvalidArgument, JobNotFound, QuotaExceeded, Unavailable
from queue_operator.domain.job import Job, ResourceRef
from queue_operator.domain.states import is_terminal
from queue_operator.domain.validation import Limits
from queue_operator.queue.quotas import Quotas
from queue_operator.settings import ControllerSettings

logger = logging.getLogger(__name__)

QUEUE_LIMIT: Final = 10_000
CONCURRENT_LOOKUPS: Final = 16
CANCEL_REASON: Final = "spec.cancel was set"


@dataclass(frozen=True, slots=True)
class Sighting:
    """One event of the watch. `gone` is what the watch says, not necessarily true: leaving
    the field selector looks the same. `leaving`: the object has a deletion timestamp.
    """

    uid: str
    namespace: str
    name: str
    generation: int
    created: str
    gone: bool
    leaving: bool
    body: Mapping[str, Any]

    @classmethod
    def of(cls, body: Mapping[str, Any], *, gone: bool) -> "Sighting":
        metadata = body["metadata"]
        return cls(
            uid=metadata["uid"],
            namespace=metadata["namespace"],
            name=metadata["name"],
            generation=metadata.get("generation", 1),
            created=metadata.get("creationTimestamp", ""),
            gone=gone,
            leaving="deletionTimestamp" in metadata,
            body=body,
        )


@dataclass(frozen=True, slots=True)
class IntakeRules:
    """How objects become jobs."""

    cluster_uid: str
    limits: Limits
    json_depth: int


class Intake:
    """Everything it does may be repeated: events are hints, the database decides."""

    def __init__(
        self,
        backend: ControllerBackend,
        kube: KubeClient,
        writer: StatusWriter,
        sightings: Sightings,
        rules: IntakeRules,
        quotas: Quotas,
        deferred: Deferred,
        settings: ControllerSettings,
        clock: Clock,
        stats: ControllerStats,
    ) -> None:
        self._backend = backend
        self._kube = kube
        self._writer = writer
        self._sightings = sightings
        self._rules = rules
        self._quotas = quotas
        self._deferred = deferred
        self._settings = settings
        self._clock = clock
        self._stats = stats
        self._queue: asyncio.Queue[Sighting] = asyncio.Queue(QUEUE_LIMIT)
        self._lookups = asyncio.Semaphore(CONCURRENT_LOOKUPS)
        self._storing = asyncio.Lock()

    async def see(self, body: Mapping[str, Any], *, gone: bool) -> None:
        """Takes an event, waiting while the sink is behind."""
        self._stats.events += 1
        sighting = Sighting.of(body, gone=gone)
        if self._is_old(sighting):
            self._stats.events_skipped += 1
            return
        await self._queue.put(sighting)

    async def repair(self, body: Mapping[str, Any]) -> None:
        """Takes an object that the comparison found, whether seen before or not."""
        await self._queue.put(Sighting.of(body, gone=False))

    def _is_old(self, sighting: Sighting) -> bool:
        if sighting.gone:
            return False
        seen = self._sightings.generation(sighting.uid)
        return not sighting.leaving and seen >= sighting.generation

    async def run(self) -> None:
        while True:
            batch = await self._batch()
            self._stats.intake_backlog = self._queue.qsize()
            await self._until_stored(partial(self._store, batch))
            for _ in batch:
                self._queue.task_done()

    async def caught_up(self) -> None:
        """Once all that was seen has been dealt with."""
        await self._queue.join()

    async def _batch(self) -> list[Sighting]:
        """The first event, and those that come within the window."""
        batch = [await self._queue.get()]
        try:
            async with asyncio.timeout(self._settings.intake_window_s):
                while len(batch) < self._settings.intake_batch:
                    batch.append(await self._queue.get())
        except TimeoutError:
            pass
        return batch

    async def _until_stored(self, action: Callable[[], Awaitable[None]]) -> None:
        failures = 0
        while True:
            try:
                await action()
            except Unavailable as error:
                failures += 1
                self._stats.store_retries += 1
                if failures == 1:
                    logger.warning("intake waits for the database, nothing is lost: %s", error)
                await self._clock.sleep(backoff_s(failures))
            else:
                if failures:
                    logger.info("intake goes on after %d failed tries", failures)
                return

    async def _store(self, batch: Sequence[Sighting]) -> None:
        newest = {sighting.uid: sighting for sighting in batch}
        present = [s for s in newest.values() if not (s.gone or s.leaving)]
        async with self._storing:
            await self._take_in(present)
            await self._cancel([s for s in present if cancel_requested(s.body)])
            await self._remove([s for s in newest.values() if s.gone or s.leaving])

    async def try_again(self, bodies: Iterable[Mapping[str, Any]]) -> dict[str, QuotaExceeded]:
        """Takes in objects that were deferred, as they are now. Gives by uid those for which there
        is still no room.
        """
        seen = [Sighting.of(body, gone=False) for body in bodies]
        async with self._storing:
            # The others have gone since they were read.
            waiting = [s for s in seen if s.uid in self._deferred]
            refused = await self._take_in(waiting, again=True)
            await self._cancel([s for s in waiting if cancel_requested(s.body)])
        return refused

    # Objects that are there

    async def _take_in(
        self, present: Iterable[Sighting], *, again: bool = False
    ) -> dict[str, QuotaExceeded]:
        """Gives by uid those that the quotas of their namespaces have no room for."""
        jobs: dict[str, Job] = {}
        refused: dict[str, QuotaExceeded] = {}
        seen: dict[str, Sighting] = {}
        for sighting in present:
            seen[sighting.uid] = sighting
            try:
                jobs[sighting.uid] = self._job(sighting)
            except InvalidArgument as error:
                self._refuse(sighting, error)
        if jobs:
            refused = await self._take_in_within_quotas(jobs, seen, again)
        for uid, sighting in seen.items():
            self._sightings.remember(uid, sighting.generation)
            if uid not in refused:
                self._deferred.drop(uid)
        for uid, lacking in refused.items():
            self._defer(seen[uid], lacking)
        self._stats.over_quota.value = len(self._deferred)
        return refused

    async def _take_in_within_quotas(
        self, jobs: Mapping[str, Job], seen: Mapping[str, Sighting], again: bool
    ) -> dict[str, QuotaExceeded]:
        new = await self._new_to_quotas(jobs, seen)
        refused: dict[str, QuotaExceeded] = {}
        if not again:
            # Who came first goes first.
            lines = {job.namespace: self._deferred.reason(job.namespace) for job in new}
            refused = {job.id: why for job in new if (why := lines[job.namespace])}
        asking = [job for job in new if job.id not in refused]
        async with self._quotas.admitting(asking, whole=False, on_credit=False) as admission:
            refused |= {asking[n].id: error for n, error in admission.refused.items()}
            admitted = {uid: job for uid, job in jobs.items() if uid not in refused}
            if admitted:
                await self._take_in_jobs(admitted, seen)
        return refused

    async def _new_to_quotas(
        self, jobs: Mapping[str, Job], seen: Mapping[str, Sighting]
    ) -> list[Job]:
        """The jobs that quotas have a say in: who asks for an end gets it at once."""
        limited = [
            job
            for uid, job in jobs.items()
            if self._quotas.limits(job.namespace) and not cancel_requested(seen[uid].body)
        ]
        stored = await self._backend.taken_in([job.id for job in limited]) if limited else ()
        return [job for job in limited if job.id not in stored]

    def _defer(self, sighting: Sighting, error: QuotaExceeded) -> None:
        uid, name, generation = sighting.uid, sighting.name, sighting.generation
        waiting = DeferredJob(uid, sighting.namespace, name, generation, sighting.created)
        is_new = self._deferred.put(waiting, error, self._clock.monotonic())
        # Nothing changes from one try to the next, nor with a restart.
        if is_new and not tells_over_quota(sighting.body, generation):
            self._tell(sighting, over_quota(error, datetime.now(UTC), generation))

    def _job(self, sighting: Sighting) -> Job:
        rules = self._rules
        return to_job(sighting.body, rules.cluster_uid, rules.limits, rules.json_depth)

    async def _take_in_jobs(self, jobs: Mapping[str, Job], seen: Mapping[str, Sighting]) -> None:
        try:
            self._stats.taken_in += len(await self._backend.take_in(list(jobs.values())))
        except InvalidArgument as error:
            if len(jobs) == 1:
                self._refuse(seen[next(iter(jobs))], error)
                return
            # One of them is at fault: alone, it disturbs nobody.
            for uid, job in jobs.items():
                await self._take_in_jobs({uid: job}, seen)

    def _refuse(self, sighting: Sighting, error: InvalidArgument) -> None:
        self._stats.refused += 1
        self._tell(sighting, refused(error, datetime.now(UTC), sighting.generation))

    def _tell(self, sighting: Sighting, status: QueueJobStatus) -> None:
        reference = ResourceRef(
            self._rules.cluster_uid, sighting.uid, sighting.name, sighting.generation
        )
        self._writer.put(Write(sighting.namespace, reference, status=status))

    async def _cancel(self, asked: Iterable[Sighting]) -> None:
        by_namespace: dict[str, list[str]] = defaultdict(list)
        for sighting in asked:
            by_namespace[sighting.namespace].append(sighting.uid)
        for namespace, uids in by_namespace.items():
            cancelled = await self._backend.cancel_jobs(
                (), uids, namespace=namespace, force=False, reason=CANCEL_REASON
            )
            self._stats.cancelled += len(cancelled.cancelled_job_ids)

    # Objects that are not, or not for long

    async def _remove(self, left: Iterable[Sighting]) -> None:
        left = [s for s in left if not (self.forget(s.uid) and s.gone)]
        gone = await asyncio.gather(*(self._is_over(sighting) for sighting in left))
        uids = [sighting.uid for sighting, over in zip(left, gone, strict=True) if over]
        if uids:
            await self._backend.detach(uids)
            self._stats.detached += len(uids)

    def forget(self, uid: str) -> bool:
        """An object that is not there any more. True when there is nothing else to do, because it
        had finished, or nothing was stored for it.
        """
        was_finished = self._sightings.forget(uid)
        was_deferred = self._deferred.drop(uid)
        self._stats.over_quota.value = len(self._deferred)
        return was_deferred or was_finished

    async def _is_over(self, sighting: Sighting) -> bool:
        """True when the job has not finished and its object is going or gone."""
        async with self._lookups:
            try:
                job = await self._backend.get_job(sighting.uid, namespace=sighting.namespace)
            except JobNotFound:
                return False
            if is_terminal(job.state):
                return False
            return sighting.leaving or await self._is_absent(sighting)

    async def _is_absent(self, sighting: Sighting) -> bool:
        try:
            return await is_absent(self._kube, sighting.namespace, sighting.name, sighting.uid)
        except (ApiError, Unavailable) as error:
            # The comparison finds it again.
            logger.warning("cannot see whether %s is gone: %s", sighting.name, error)
            return False


async def is_absent(kube: KubeClient, namespace: str, name: str, uid: str) -> bool:
    """True when no QueueJob of that name has that uid, or it is being deleted."""
    path = object_path(QUEUE_JOB.plural, namespace, name)
    try:
        found = await kube.get(path, accept=METADATA_ONLY.format("PartialObjectMetadata"))
    except ApiError as error:
        if error.status == HTTPStatus.NOT_FOUND:
            return True
        raise
    metadata = found["metadata"]
    return metadata["uid"] != uid or "deletionTimestamp" in metadata
