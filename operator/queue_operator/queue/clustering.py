"""Failures by what they have in common. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from queue_operator.domain.job import Job
from queue_operator.domain.outcome import ErrorCategory, ErrorInfo
from queue_operator.domain.shapes import shape

MOST_CLUSTERS: Final = 10
"""Of one type; the most frequent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Failures of one type and code whose messages have one shape. `job_id` and `message` are those
    of the newest.
    """

    code: str
    category: ErrorCategory
    shape: str
    count: int
    newest_at: datetime | None
    job_id: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FailingType:
    """`attempts_failed` and `completed` are of the whole window, the clusters of what was read."""

    type: str
    attempts_failed: int = 0
    completed: int = 0
    clusters: tuple[Cluster, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Clustered:
    """The types that fail, the worst first. `read` of the newest failures were read; unless
    `is_complete`, there are more.
    """

    since: datetime
    read: int = 0
    is_complete: bool = True
    types: tuple[FailingType, ...] = ()


@dataclass(slots=True)
class _Growing:
    newest: Job
    error: ErrorInfo
    count: int = 0


@dataclass(slots=True)
class Clusters:
    """Grows by each failure, the newest first."""

    _found: dict[str, dict[tuple[str, str], _Growing]] = field(default_factory=dict)

    @classmethod
    def of(cls, failed: Iterable[Job]) -> "Clusters":
        found = cls()
        for job in failed:
            if job.error is not None:
                found.add(job, job.error)
        return found

    def add(self, job: Job, error: ErrorInfo) -> None:
        of_type = self._found.setdefault(job.type, {})
        key = error.code, shape(error.message)
        of_type.setdefault(key, _Growing(job, error)).count += 1

    def code_of(self, kind: str) -> str:
        """The most frequent code of a type, "" where none is known."""
        counts: dict[str, int] = {}
        for (code, _), one in self._found.get(kind, {}).items():
            counts[code] = counts.get(code, 0) + one.count
        return max(counts, key=lambda code: counts[code], default="")

    def types(self, failed: Mapping[str, int], completed: Mapping[str, int]) -> list[FailingType]:
        """With what was counted of each."""
        names = self._found.keys() | failed.keys()
        found = [
            FailingType(
                type=name,
                attempts_failed=failed.get(name, 0),
                completed=completed.get(name, 0),
                clusters=tuple(self._clusters(name)),
            )
            for name in names
        ]
        return sorted(found, key=lambda one: (-one.attempts_failed, one.type))

    def _clusters(self, kind: str) -> list[Cluster]:
        found = [
            Cluster(
                code=code,
                category=one.error.category,
                shape=told,
                count=one.count,
                newest_at=one.newest.failed_at or one.newest.updated_at,
                job_id=one.newest.id,
                message=one.error.message,
            )
            for (code, told), one in self._found.get(kind, {}).items()
        ]
        found.sort(key=lambda cluster: -cluster.count)
        return found[:MOST_CLUSTERS]
