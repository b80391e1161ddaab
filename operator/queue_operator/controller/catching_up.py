"""Bringing again what the watch showed while there was no room for it: a list that waits."""

import logging
from collections.abc import Collection
from typing import Final

from queue_operator.controller.intake import Intake
from queue_operator.controller.kube import ApiError, KubeClient, collection_path
from queue_operator.controller.pacing import backoff_s
from queue_operator.crd.names import QUEUE_JOB, UNFINISHED_SELECTOR
from queue_operator.domain.clock import Clock
from queue_operator.domain.errors import Unavailable

logger = logging.getLogger(__name__)

PAGE: Final = 100
"""Objects of which the bodies are in memory at a time, beside those of the inbox."""


class CatchUp:
    """The watch cannot be held up, and this can: the next page is read when the last one has gone
    into the inbox. Deletions that were let go are found by the comparison.
    """

    def __init__(
        self, intake: Intake, kube: KubeClient, namespaces: Collection[str], clock: Clock
    ) -> None:
        self._intake = intake
        self._kube = kube
        self._namespaces = tuple(namespaces)
        self._clock = clock

    async def run(self) -> None:
        while True:
            await self._intake.fell_behind()
            failures = 0
            while not await self._try(failures):
                failures += 1
                await self._clock.sleep(backoff_s(failures))

    async def _try(self, failures: int) -> bool:
        try:
            await self.once()
        except (ApiError, Unavailable) as error:
            # Also a list that took so long that its next page is gone: what went in is not new.
            if not failures:
                logger.warning("QueueJobs are listed again: %s", error)
            return False
        return True

    async def once(self) -> None:
        """All unfinished objects once. Raises ApiError or Unavailable."""
        for namespace in self._namespaces or (None,):
            pages = self._kube.pages(
                collection_path(QUEUE_JOB.plural, namespace),
                field_selector=UNFINISHED_SELECTOR,
                limit=PAGE,
            )
            async for page in pages:
                for body in page:
                    await self._intake.catch_up(body)
