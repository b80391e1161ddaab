"""Edits of QueueJobs that have ended: nothing comes of them, but tools wait to see them observed.

The watch of the controller does not show what has ended. This one shows its names only, and reads
an object when its spec is not the one that its status tells of.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Collection, Mapping
from http import HTTPStatus
from typing import Any, Final

from queue_operator.controller.kube import ApiError, KubeClient, collection_path, object_path
from queue_operator.controller.ownership import Ownership
from queue_operator.controller.pacing import backoff_s
from queue_operator.controller.ports import ControllerStats
from queue_operator.crd.names import FINISHED_SELECTOR, QUEUE_JOB
from queue_operator.domain.clock import Clock
from queue_operator.domain.errors import Unavailable

logger = logging.getLogger(__name__)

REMEMBERED: Final = 20_000
"""Objects of which it is kept in which version they told of their newest spec."""
_LEAST_PAUSE_S: Final = 1.0
_SETTLED: Final = frozenset({HTTPStatus.NOT_FOUND, HTTPStatus.UNPROCESSABLE_ENTITY})


class FinishedEdits:
    """Only a hint is lost when it is: the next list finds what was not observed."""

    def __init__(
        self,
        kube: KubeClient,
        ownership: Ownership,
        namespaces: Collection[str],
        clock: Clock,
        stats: ControllerStats,
    ) -> None:
        self._kube = kube
        self._ownership = ownership
        self._namespaces = tuple(namespaces)
        self._clock = clock
        self._stats = stats
        self._observed: OrderedDict[str, str] = OrderedDict()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for namespace in self._namespaces or (None,):
                group.create_task(self._run(namespace), name=f"edits in {namespace or 'all'}")

    async def _run(self, namespace: str | None) -> None:
        failures = 0
        while True:
            try:
                await self.follow(namespace)
                failures = 0
            except (ApiError, Unavailable) as error:
                failures += 1
                if failures == 1:
                    logger.warning("edits of finished QueueJobs are looked for again: %s", error)
            await self._clock.sleep(backoff_s(failures) if failures else _LEAST_PAUSE_S)

    async def follow(self, namespace: str | None) -> None:
        """Lists once and watches from there, until the API server has forgotten where that was.
        Raises ApiError or Unavailable.
        """
        path = collection_path(QUEUE_JOB.plural, namespace)
        version = ""
        pages = self._kube.lists(path, field_selector=FINISHED_SELECTOR, metadata_only=True)
        async for page in pages:
            version = page["metadata"]["resourceVersion"]
            for item in page["items"] or []:
                await self._see(item["metadata"])
        while True:
            try:
                async for kind, metadata in self._kube.watch(
                    path, version, field_selector=FINISHED_SELECTOR
                ):
                    version = metadata["resourceVersion"]
                    if kind in ("ADDED", "MODIFIED"):
                        await self._see(metadata)
            except ApiError as error:
                if error.status == HTTPStatus.GONE:
                    return
                raise

    async def _see(self, metadata: Mapping[str, Any]) -> None:
        uid = metadata["uid"]
        # What was never edited was taken in as it is. Versions, since a status that was on its way
        # meanwhile may have overwritten what we wrote.
        if (
            metadata.get("generation", 1) <= 1
            or self._observed.get(uid) == metadata["resourceVersion"]
        ):
            return
        namespace = metadata["namespace"]
        if namespace not in await self._ownership.serve({namespace}):
            return
        if version := await self._observe(namespace, metadata["name"], uid):
            self._observed[uid] = version
            self._observed.move_to_end(uid)
            if len(self._observed) > REMEMBERED:
                self._observed.popitem(last=False)

    async def _observe(self, namespace: str, name: str, uid: str) -> str | None:
        """The version that tells of its newest spec; None where nobody needs to know."""
        path = object_path(QUEUE_JOB.plural, namespace, name)
        try:
            body = await self._kube.get(path)
            if body["metadata"]["uid"] != uid:
                return None
            if (status := observed(body)) is not None:
                body = await self._kube.replace_status(path, uid, status)
                self._stats.edits_observed += 1
        except ApiError as error:
            # Gone, or retried meanwhile: then its status is written anyway.
            if error.status not in _SETTLED:
                raise
            return None
        version: str = body["metadata"]["resourceVersion"]
        return version


def observed(body: Mapping[str, Any]) -> dict[str, Any] | None:
    """The status of a finished object that tells of its newest spec; None where it does so already.
    Nothing else of it changes.
    """
    generation, status = body["metadata"].get("generation", 1), body.get("status") or {}
    if not status.get("finished") or status.get("observedGeneration", 0) >= generation:
        return None
    conditions = [
        {**condition, "observedGeneration": generation}
        for condition in status.get("conditions") or ()
    ]
    return {**status, "observedGeneration": generation, "conditions": conditions}
