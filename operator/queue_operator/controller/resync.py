"""The periodic comparison of resources and jobs: what events missed is found here."""

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final

from queue_operator.controller.backlog import Write
from queue_operator.controller.deferred import Deferred
from queue_operator.controller.intake import Intake, is_absent
from queue_operator.controller.kube import ApiError, KubeClient, collection_path, object_path
from queue_operator.controller.ownership import Ownership
from queue_operator.controller.ports import ControllerBackend, ControllerStats
from queue_operator.controller.projection import StatusWriter
from queue_operator.controller.sightings import Sightings
from queue_operator.crd.names import QUEUE_JOB, UNFINISHED_SELECTOR
from queue_operator.domain.clock import Clock
from queue_operator.domain.errors import Unavailable
from queue_operator.domain.shown import ShownJob
from queue_operator.domain.states import is_terminal

logger = logging.getLogger(__name__)

STEP: Final = 500
MOST_REPAIRS: Final = 500
"""Objects looked at again in one pass; the next pass takes more."""


@dataclass(frozen=True, slots=True)
class Listed:
    """A QueueJob as the list of unfinished ones showed it."""

    uid: str
    namespace: str
    name: str


@dataclass(slots=True)
class Difference:
    """`missing` jobs have no listed object, `unknown` objects no attached job."""

    missing: list[tuple[str, str]] = field(default_factory=list)
    unknown: list[Listed] = field(default_factory=list)


def compare(
    listed: Mapping[str, Listed], attached: Collection[tuple[str, str]], served: Collection[str]
) -> Difference:
    """`served` are the namespaces whose lists were complete, empty for all."""
    attached_uids = {uid for _, uid in attached}
    return Difference(
        missing=[
            (namespace, uid)
            for namespace, uid in attached
            if uid not in listed and (not served or namespace in served)
        ],
        unknown=[item for uid, item in listed.items() if uid not in attached_uids],
    )


class Resync:
    """One pass every `resync_s`. A difference is only a suspicion, looked at one by one."""

    def __init__(
        self,
        backend: ControllerBackend,
        kube: KubeClient,
        intake: Intake,
        writer: StatusWriter,
        sightings: Sightings,
        deferred: Deferred,
        ownership: Ownership,
        *,
        cluster_uid: str,
        namespaces: Collection[str],
        clock: Clock,
        stats: ControllerStats,
    ) -> None:
        self._backend = backend
        self._kube = kube
        self._intake = intake
        self._writer = writer
        self._sightings = sightings
        self._deferred = deferred
        self._ownership = ownership
        self._cluster_uid = cluster_uid
        self._namespaces = tuple(namespaces)
        self._clock = clock
        self._stats = stats
        self._suspected: frozenset[str] = frozenset()

    async def run(self, interval_s: float) -> None:
        while True:
            await self._clock.sleep(interval_s)
            try:
                await self.once()
            except (ApiError, Unavailable) as error:
                logger.warning("comparison of resources and jobs put off: %s", error)

    async def once(self) -> Difference:
        """A complete pass. Raises ApiError or Unavailable, having cancelled nothing."""
        began_s = self._clock.monotonic()
        # Known before the list: what comes meanwhile must not be forgotten.
        before = frozenset(self._sightings.uids())
        listed = await self._list()
        attached = await self._backend.attached(self._cluster_uid)
        difference = compare(listed, attached, self._namespaces)
        for uid in before - listed.keys():
            self._intake.forget(uid)
        await self._detach(difference.missing)
        owned = await self._ownership.serve({one.namespace for one in listed.values()})
        await self._repair([one for one in difference.unknown if one.namespace in owned])
        self._stats.resyncs += 1
        self._stats.figures.compared(self._clock.monotonic() - began_s)
        return difference

    async def _list(self) -> dict[str, Listed]:
        listed: dict[str, Listed] = {}
        for namespace in self._namespaces or (None,):
            pages = self._kube.pages(
                collection_path(QUEUE_JOB.plural, namespace),
                field_selector=UNFINISHED_SELECTOR,
                metadata_only=True,
            )
            async for page in pages:
                for metadata in (item["metadata"] for item in page):
                    uid = metadata["uid"]
                    listed[uid] = Listed(uid, metadata["namespace"], metadata["name"])
        return listed

    async def _detach(self, missing: Collection[tuple[str, str]]) -> None:
        """Missing from the list is not gone: it may have been created, or retried, since."""
        gone: list[str] = []
        for some in _steps(list(missing)):
            jobs = await self._backend.shown_jobs(some)
            gone += [job.id for job in jobs.values() if await self._is_gone(job)]
        await self._intake.detach(gone)
        if gone:
            logger.info("cancelled %d jobs whose QueueJob is gone", len(gone))

    async def _is_gone(self, job: ShownJob) -> bool:
        if is_terminal(job.state) or job.resource is None:
            return False
        return await is_absent(self._kube, job.namespace, job.resource.name, job.id)

    async def _repair(self, unknown: Collection[Listed]) -> None:
        """Never seen: taken in now. Seen, but unfinished here and finished there for a whole
        pass: its last status has not arrived. Those deferred, or that stand for others, are looked
        after elsewhere.
        """
        stand_ins = self._intake.stand_ins
        unknown = [
            item for item in unknown if item.uid not in self._deferred and item.uid not in stand_ins
        ]
        unseen = [item for item in unknown if item.uid not in self._sightings]
        overdue = [item for item in unknown if item.uid in self._suspected]
        self._suspected = frozenset(item.uid for item in unknown) - {i.uid for i in unseen}
        for item in unseen[:MOST_REPAIRS]:
            await self._take_in_again(item)
        await self._write_again(overdue[:MOST_REPAIRS])

    async def _take_in_again(self, item: Listed) -> None:
        body = await self._object(item)
        if body is not None:
            self._stats.resync_repairs += 1
            await self._intake.repair(body)

    async def _object(self, item: Listed) -> dict[str, Any] | None:
        try:
            body: dict[str, Any] = await self._kube.get(
                object_path(QUEUE_JOB.plural, item.namespace, item.name)
            )
        except ApiError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return None
            raise
        return body if body["metadata"]["uid"] == item.uid else None

    async def _write_again(self, overdue: Collection[Listed]) -> None:
        jobs = await self._backend.shown_jobs({(one.namespace, one.uid) for one in overdue})
        for item in overdue:
            job = jobs.get((item.namespace, item.uid))
            if job is None:
                await self._take_in_again(item)
            elif job.resource is not None and is_terminal(job.state):
                self._stats.resync_repairs += 1
                self._writer.put(Write(job.namespace, job.resource, job=job))


def _steps(found: Sequence[tuple[str, str]]) -> Iterator[Sequence[tuple[str, str]]]:
    return (found[start : start + STEP] for start in range(0, len(found), STEP))
