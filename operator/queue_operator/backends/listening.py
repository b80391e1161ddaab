"""Wake-ups out of a store that is read again and again: whoever writes raises the version of
what changed, in the same transaction. That the time of a delayed job has come is written by
nobody; each listener sees it for itself.
"""

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from datetime import datetime
from typing import Final, NamedTuple

from queue_operator.backends.news import EVERYTHING, News, Topic
from queue_operator.domain.errors import Unavailable

POLL_S: Final = 0.25

logger = logging.getLogger(__name__)


class Versions(NamedTuple):
    """Those of the store by topic, and whether a job became due."""

    versions: Mapping[str, int]
    due: bool


Read = Callable[[datetime, datetime], Awaitable[Versions]]
"""What there is now, and whether the time of a job came after the first time and up to the
second. Raises Unavailable.
"""


async def listen(
    read: Read, clock: Callable[[], datetime], sleep: Callable[[float], Awaitable[None]]
) -> AsyncGenerator[News, None]:
    """Yields all topics first, since nobody knows what was missed before, and again after the
    store could not be read; else those announced since the last yield.
    """
    seen, since = None, clock()
    while True:
        now = clock()
        found = await _try(read, since, now, failed_before=seen is None)
        if found is not None:
            topics = EVERYTHING if seen is None else _risen(seen, found.versions)
            if topics or found.due:
                yield {**topics, Topic.READY: None} if found.due else topics
        seen, since = (found.versions if found else None), now
        await sleep(POLL_S)


async def _try(
    read: Read, since: datetime, now: datetime, *, failed_before: bool
) -> Versions | None:
    try:
        return await read(since, now)
    except Unavailable as error:
        if not failed_before:
            logger.warning("reading the signals failed, trying again: %s", error)
        return None


def _risen(seen: Mapping[str, int], versions: Mapping[str, int]) -> News:
    risen = [topic for topic in Topic if versions.get(topic, 0) != seen.get(topic, 0)]
    return dict.fromkeys(risen)
