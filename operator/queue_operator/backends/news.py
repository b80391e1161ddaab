"""What is told to those who wait: hints, never the truth."""

import asyncio
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final, NamedTuple

MOST_KINDS: Final = 64
"""News about more kinds of jobs than these are news about any: to compare them with every
stream would cost more than to look.
"""


class Topic(StrEnum):
    """What changed, for those who wait: hints between processes, never the truth."""

    READY = "ready"
    """Jobs may be eligible."""
    CANCEL = "cancel"
    """Running jobs were asked to stop."""
    MIRROR = "mirror"
    """Jobs that came from custom resources moved."""
    SESSION = "session"
    """Worker sessions came or went."""
    PAUSE = "pause"
    """Something was paused, or goes on."""


class Kind(NamedTuple):
    """What a stream selects jobs by."""

    namespace: str
    type: str
    tags: frozenset[str]


Kinds = frozenset[Kind] | None
"""The kinds of jobs that news are about; None: any."""

News = Mapping[Topic, Kinds]
"""What was announced, by topic. Only news of READY say which jobs they are about."""

EVERYTHING: Final[News] = dict.fromkeys(Topic)


def about(kinds: Iterable[tuple[str, str, frozenset[str]]]) -> Kinds:
    """`kinds` if they are few enough to be worth telling apart."""
    # Plain tuples are equal to named ones and made in half the time: there may be thousands.
    named = set(kinds)
    return frozenset(Kind(*kind) for kind in named) if len(named) <= MOST_KINDS else None


def merged(news: News, more: News) -> News:
    both = dict(news)
    for topic, kinds in more.items():
        before = both.get(topic, frozenset())
        both[topic] = None if before is None or kinds is None else about(before | kinds)
    return both


class Inbox:
    """What one listener has not taken yet."""

    def __init__(self) -> None:
        self._news: News = {}
        self._filled = asyncio.Event()

    def put(self, news: News) -> None:
        if news:
            self._news = merged(self._news, news)
            self._filled.set()

    async def take(self) -> News:
        """All that came since the last time, once there is any."""
        await self._filled.wait()
        self._filled.clear()
        news, self._news = self._news, {}
        return news
