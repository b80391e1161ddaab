"""Workers whose sessions broke without a goodbye, as stores keep them for some minutes."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

LOST_FOR: Final = timedelta(minutes=10)
"""So long a lost worker is told of, unless one of its name comes before."""
MOST_LOST: Final = 200
"""So many of a namespace are told of, the newest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """What is known of the end of a session: it broke `ago_s` before now, and `jobs` were taken
    from its worker, or will be when their leases end.
    """

    session_id: str
    jobs: int = 0
    ago_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LostWorker:
    """A worker that nobody has heard of since its session broke. Without `types` it handled any."""

    session_id: str
    namespace: str
    worker_name: str
    host: str = ""
    version: str = ""
    types: frozenset[str] = frozenset()
    capacity: int = 1
    jobs: int = 0
    lost_at: datetime


def newest_of(lost: Iterable[LostWorker], namespace: str, now: datetime) -> list[LostWorker]:
    """Those of a namespace that are told of, the newest first."""
    mine = [one for one in lost if one.namespace == namespace and now - one.lost_at <= LOST_FOR]
    return newest_first(mine)


def newest_first(lost: Iterable[LostWorker]) -> list[LostWorker]:
    """As many as are told of."""
    mine = sorted(lost, key=lambda one: one.session_id)
    mine.sort(key=lambda one: one.lost_at, reverse=True)
    return mine[:MOST_LOST]
