"""From watch events to jobs: a bounded inbox, and one sink that stores in batches."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from http import HTTPStatus
from typing import Any, Final

from queue_operator.controller.backlog import Write
from queue_operator.controller.deferred import Deferred, DeferredJob
from queue_operator.controller.inbox import Inbox
from queue_operator.controller.kube import METADATA_ONLY, ApiError, KubeClient, object_path
from queue_operator.controller.ownership import Ownership
from queue_operator.controller.pacing import backoff_s
from queue_operator.controller.ports import ControllerBackend, ControllerStats
from queue_operator.controller.priorities import Priorities
from queue_operator.controller.projection import StatusWriter
from queue_operator.controller.sighting import IntakeRules, Sighting
from queue_operator.controller.sightings import Sightings
from queue_operator.controller.standins import StandIns
from queue_operator.controller.traced import TakingIn
from queue_operator.crd.conditions import over_quota, refused
from queue_operator.crd.names import QUEUE_JOB
from queue_operator.crd.submission import in_manifest
from queue_operator.crd.v1alpha1 import QueueJobStatus
from queue_operator.domain.batch import unplaced
from queue_operator.domain.clock import Clock
from queue_operator.domain.errors import InvalidArgument, QueueError, QuotaExceeded, Unavailable
from queue_operator.domain.job import Job
from queue_operator.domain.states import is_terminal
from queue_operator.domain.units import respelled
from queue_operator.observing import about
from queue_operator.queue.quotas import Quotas
from queue_operator.settings import ControllerSettings
from queue_operator.tracing.off import OFF
from queue_operator.tracing.protocol import Tracing

logger = logging.getLogger(__name__)

CONCURRENT_LOOKUPS: Final = 16
CANCEL_REASON: Final = "spec.cancel was set"


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
        ownership: Ownership,
        settings: ControllerSettings,
        clock: Clock,
        stats: ControllerStats,
        tracing: Tracing = OFF,
    ) -> None:
        self._backend = backend
        self._kube = kube
        self._writer = writer
        self._sightings = sightings
        self._rules = rules
        self._quotas = quotas
        self._deferred = deferred
        self._ownership = ownership
        self._settings = settings
        self._clock = clock
        self._stats = stats
        self._tracing = tracing
        self.stand_ins = StandIns(backend, writer, clock)
        self.priorities = Priorities(backend, clock)
        self._inbox = Inbox()
        self._behind = asyncio.Event()
        self._lookups = asyncio.Semaphore(CONCURRENT_LOOKUPS)
        self._storing = asyncio.Lock()

    def see(self, body: Mapping[str, Any], *, gone: bool) -> None:
        """Takes an event, or lets it go where there is no room: nobody is made to hold it, and a
        list brings the object again.
        """
        self._stats.events += 1
        sighting = self._sighting(body, gone=gone)
        if sighting is None:
            self._stats.events_skipped += 1
        elif not self._inbox.offer(sighting):
            self._stats.events_put_off += 1
            self._behind.set()
        self._show()

    def _show(self) -> None:
        self._stats.figures.intake_backlog = len(self._inbox)

    async def repair(self, body: Mapping[str, Any]) -> None:
        """Takes an object that somebody read, whether seen before or not, once there is room."""
        await self._inbox.put(Sighting.of(body, self._rules))

    async def catch_up(self, body: Mapping[str, Any]) -> None:
        """Takes an object of a list unless it was seen before, once there is room."""
        sighting = self._sighting(body, gone=False)
        if sighting is not None:
            await self._inbox.put(sighting)

    async def fell_behind(self) -> None:
        """Returns once events were let go and there is room again."""
        await self._behind.wait()
        await self._inbox.half_empty()
        self._behind.clear()

    def _sighting(self, body: Mapping[str, Any], *, gone: bool) -> Sighting | None:
        """None for what was seen before."""
        metadata = body["metadata"]
        seen = self._sightings.generation(metadata["uid"])
        is_old = seen >= metadata.get("generation", 1) and "deletionTimestamp" not in metadata
        return None if is_old and not gone else Sighting.of(body, self._rules, gone=gone)

    async def run(self) -> None:
        while True:
            batch = await self._inbox.batch(
                self._settings.intake_batch, self._settings.intake_window_s
            )
            self._show()
            await self._until_stored(partial(self._store, batch))
            self._inbox.done(batch)
            self._show()

    async def caught_up(self) -> None:
        """Once all that was seen has been dealt with."""
        await self._inbox.drained()

    async def _until_stored(self, action: Callable[[], Awaitable[None]]) -> None:
        failures = 0
        while True:
            try:
                await action()
            except Unavailable as error:
                failures += 1
                self._stats.store_retries += 1
                if failures == 1:
                    logger.warning("intake waits, nothing is lost: %s", error)
                await self._clock.sleep(backoff_s(failures))
            else:
                if failures:
                    logger.info("intake goes on after %d failed tries", failures)
                return

    async def _store(self, batch: Sequence[Sighting]) -> None:
        newest = {sighting.uid: sighting for sighting in batch}
        present = await self._ours([s for s in newest.values() if s.is_present])
        async with self._storing:
            await self._take_in(present)
            await self._cancel([s for s in present if s.cancel])
            await self._remove([s for s in newest.values() if not s.is_present])

    async def _ours(self, present: Sequence[Sighting]) -> list[Sighting]:
        """Without those of namespaces that another operator serves. They are not remembered, and
        the comparison brings them again once it does not.
        """
        owned = await self._ownership.serve({one.namespace for one in present})
        return [one for one in present if one.namespace in owned]

    async def try_again(self, bodies: Iterable[Mapping[str, Any]]) -> dict[str, QuotaExceeded]:
        """Takes in objects that were deferred, as they are now. Gives by uid those for which there
        is still no room.
        """
        seen = [Sighting.of(body, self._rules) for body in bodies]
        async with self._storing:
            # The others have gone since they were read.
            waiting = await self._ours([s for s in seen if s.uid in self._deferred])
            refused = await self._take_in(waiting, again=True)
            await self._cancel([s for s in waiting if s.cancel])
        return refused

    # Objects that are there

    async def _take_in(
        self, present: Iterable[Sighting], *, again: bool = False
    ) -> dict[str, QuotaExceeded]:
        """Gives by uid those that the quotas of their namespaces have no room for."""
        seen = {sighting.uid: sighting for sighting in present}
        jobs = {uid: one.job for uid, one in seen.items() if one.job and not one.error}
        refused: dict[str, QuotaExceeded] = {}
        await self._turn_away([one for one in seen.values() if one.error is not None])
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

    async def _turn_away(self, wrong: Sequence[Sighting]) -> None:
        """Those that may not have a job. What has one, of when settings were others, keeps it."""
        stored = await self._backend.taken_in([one.uid for one in wrong]) if wrong else ()
        for sighting in wrong:
            if sighting.error is not None and sighting.uid not in stored:
                self._refuse(sighting, sighting.error)
        await self._observe([one for one in wrong if one.uid in stored])

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
            if self._quotas.limits(job.namespace) and not seen[uid].cancel
        ]
        stored = await self._backend.taken_in([job.id for job in limited]) if limited else ()
        return [job for job in limited if job.id not in stored]

    def _defer(self, sighting: Sighting, error: QuotaExceeded) -> None:
        uid, name, generation = sighting.uid, sighting.name, sighting.generation
        waiting = DeferredJob(uid, sighting.namespace, name, generation, sighting.created)
        is_new = self._deferred.put(waiting, error, self._clock.monotonic())
        # Nothing changes from one try to the next, nor with a restart.
        if is_new and not sighting.told_over_quota:
            self._tell(sighting, over_quota(error, datetime.now(UTC), generation))

    async def _take_in_jobs(self, jobs: Mapping[str, Job], seen: Mapping[str, Sighting]) -> None:
        taking_in = TakingIn(self._tracing, jobs)
        try:
            taken = await self._backend.take_in(taking_in.jobs)
        except InvalidArgument as error:
            if len(jobs) == 1:
                self._refuse(seen[next(iter(jobs))], _spelled(error))
                return
            # One of them is at fault: alone, it disturbs nobody.
            for uid, job in jobs.items():
                await self._take_in_jobs({uid: job}, seen)
            return
        taking_in.stored(taken.new)
        self._stats.taken_in += len(taken.new)
        for uid, job_id in taken.stands_for.items():
            self.stand_ins.put(seen[uid].namespace, seen[uid].resource, job_id)
        for uid, end in taken.ended.items():
            self._writer.put(Write(seen[uid].namespace, seen[uid].resource, job=end))
        for uid, fault in taken.refused.items():
            self._refuse(seen[uid], _spelled(fault))
        known = jobs.keys() - {*taken.new, *taken.stands_for, *taken.ended, *taken.refused}
        await self._observe([seen[uid] for uid in known])

    async def _observe(self, known: Iterable[Sighting]) -> None:
        """Jobs stored before, and their statuses, follow the edits of their resources."""
        edited = [one for one in known if one.generation > max(self._seen(one), 1)]
        wanted = {(one.namespace, one.uid): one.job for one in edited if one.job is not None}
        if wanted:
            await self._backend.set_suspended({n: job.suspended for n, job in wanted.items()})
        for (namespace, uid), spec in wanted.items():
            self.priorities.want(namespace, uid, spec.priority)
        untold = {(one.namespace, one.uid): one for one in edited if one.generation > one.observed}
        if not untold:
            return
        for name, job in (await self._backend.shown_jobs(untold.keys())).items():
            self._writer.put(Write(job.namespace, untold[name].resource, job=job))

    def _seen(self, sighting: Sighting) -> int:
        return self._sightings.generation(sighting.uid)

    def _refuse(self, sighting: Sighting, error: QueueError) -> None:
        self._stats.refused += 1
        self._tell(sighting, refused(error, datetime.now(UTC), sighting.generation))

    def _tell(self, sighting: Sighting, status: QueueJobStatus) -> None:
        self._writer.put(Write(sighting.namespace, sighting.resource, status=status))

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
        if not left:
            return
        jobs = await self._backend.shown_jobs({(one.namespace, one.uid) for one in left})
        alive = {uid for (_, uid), job in jobs.items() if not is_terminal(job.state)}
        asked = [one for one in left if one.uid in alive]
        over = await asyncio.gather(*(self._is_over(sighting) for sighting in asked))
        await self.detach([one.uid for one, is_over in zip(asked, over, strict=True) if is_over])

    async def detach(self, uids: Collection[str]) -> None:
        """Their resources are gone."""
        if uids:
            await self._backend.detach(uids)
            self._stats.detached += len(uids)

    def forget(self, uid: str) -> bool:
        """An object that is not there any more. True when there is nothing else to do, because it
        had finished, or nothing was stored for it.
        """
        was_finished = self._sightings.forget(uid)
        was_deferred = self._deferred.drop(uid)
        stood_in = self.stand_ins.drop(uid)
        self._stats.over_quota.value = len(self._deferred)
        return was_deferred or was_finished or stood_in

    async def _is_over(self, sighting: Sighting) -> bool:
        """True when the object of an unfinished job is going or gone."""
        async with self._lookups:
            return sighting.leaving or await self._is_absent(sighting)

    async def _is_absent(self, sighting: Sighting) -> bool:
        try:
            return await is_absent(self._kube, sighting.namespace, sighting.name, sighting.uid)
        except (ApiError, Unavailable) as error:
            # The comparison finds it again.
            logger.warning(
                "cannot see whether %s is gone: %s",
                sighting.name,
                error,
                extra=about(sighting.namespace, sighting.uid),
            )
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


def _spelled(error: QueueError) -> QueueError:
    """Not by the place in what was taken in together, which nobody knows."""
    return respelled(unplaced(error), in_manifest)
