"""A shelf in memory: a dictionary of jobs."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from queue_operator.backends.intake import Holder, Name
from queue_operator.backends.listening import Versions
from queue_operator.backends.protocol import (
    EventBatch,
    FailurePage,
    FailureSearch,
    JobPage,
    JobSearch,
    LogLine,
    QueueDepth,
    Topic,
    WorkerSession,
)
from queue_operator.backends.searching import page, page_of_failures
from queue_operator.backends.stored import Stored
from queue_operator.domain import record
from queue_operator.domain.job import Demand, Job
from queue_operator.domain.running import LOG_ATTEMPTS, newest_lines
from queue_operator.domain.states import SLOT_HOLDING, JobState
from queue_operator.domain.tags import matches


@dataclass
class MemoryShelf:
    """What all backends on one store share. One that is not `reachable` is Unavailable."""

    jobs: dict[Name, Stored] = field(default_factory=dict)
    keys: dict[Name, Holder] = field(default_factory=dict)
    log: list[EventBatch] = field(default_factory=list)
    versions: Counter[str] = field(default_factory=Counter)
    sessions: dict[str, WorkerSession] = field(default_factory=dict)
    logs: dict[int, dict[int, dict[int, LogLine]]] = field(default_factory=dict)
    numbers: int = 0
    swept_at: datetime | None = None
    resumed_at: datetime | None = None
    reachable: bool = True

    def get(self, name: Name) -> Stored | None:
        return self.jobs.get(name)

    def holds(self, name: Name) -> bool:
        return name in self.jobs

    def add(self, job: Job) -> Stored:
        self.numbers += 1
        one = self.jobs[job.namespace, job.id] = Stored(number=self.numbers, job=job)
        return one

    def remove(self, chosen: Collection[Stored]) -> None:
        for one in chosen:
            del self.jobs[one.job.namespace, one.job.id]
            self.keys.pop((one.job.namespace, one.job.idempotency_key), None)
            self.logs.pop(one.number, None)

    def holder_of(self, key: Name) -> Holder | None:
        return self.keys.get(key)

    def hold(self, key: Name, holder: Holder) -> None:
        self.keys[key] = holder

    def claimable(self, wanted: Demand, now: datetime, limit: int) -> list[Stored]:
        found = [
            one
            for one in self._all(wanted.namespace)
            if record.is_claimable(one.job, now)
            and (not wanted.types or one.job.type in wanted.types)
            and matches(wanted.tags, one.job.tags)
        ]
        return sorted(found, key=lambda one: (record.place(one.job), one.number))[:limit]

    def chosen(self, namespace: str, tags: frozenset[str], ids: Collection[str]) -> list[Stored]:
        named = set(ids)
        return [
            one
            for one in self._all(namespace)
            if one.job.id in named or (tags and matches(tags, one.job.tags))
        ]

    def children_of(self, parent: Stored) -> list[Stored]:
        return [
            one
            for one in self._all(parent.job.namespace)
            if one.job.state is JobState.INITIAL_PENDING
            and any(edge.number == parent.number for edge in one.edges)
        ]

    def leased(self) -> list[Stored]:
        return [one for one in self.jobs.values() if one.job.state in SLOT_HOLDING]

    def used_up(self, now: datetime) -> list[Stored]:
        lost = [one for one in self.jobs.values() if one.job.state is JobState.UNKNOWN_RETRY]
        used = [one for one in lost if record.is_used_up(one.job)]
        return [one for one in used if (one.job.eligible_at or now) <= now]

    def completed_before(self, at: datetime, namespace: str | None) -> list[Stored]:
        done = [one for one in self.jobs.values() if one.job.state is JobState.COMPLETED]
        mine = [one for one in done if namespace in (None, one.job.namespace)]
        return [one for one in mine if (one.job.finalized_at or at) < at]

    def search(self, search: JobSearch, now: datetime) -> JobPage:
        return page(self._numbered(search.namespace), search, now)

    def search_failures(self, search: FailureSearch) -> FailurePage:
        return page_of_failures(self._numbered(search.namespace), search)

    def _numbered(self, namespace: str) -> Iterator[tuple[int, Job]]:
        return ((one.number, one.job) for one in self._all(namespace))

    def counts(self, namespace: str, tags: frozenset[str]) -> tuple[Mapping[JobState, int], int]:
        jobs = [one.job for one in self._all(namespace) if matches(tags, one.job.tags)]
        return Counter(job.state for job in jobs), sum(job.retry_count for job in jobs)

    def _all(self, namespace: str) -> list[Stored]:
        return [one for one in self.jobs.values() if one.job.namespace == namespace]

    def add_lines(self, one: Stored, version: int, lines: Sequence[LogLine]) -> None:
        log = self.logs.setdefault(one.number, {})
        log.setdefault(version, {}).update((line.number, line) for line in lines)
        in_order = [log[version][number] for number in sorted(log[version])]
        kept = newest_lines(version, 0, in_order).lines
        log[version] = {line.number: line for line in kept}
        for old in sorted(log)[:-LOG_ATTEMPTS]:
            del log[old]

    def lines_of(self, one: Stored) -> Mapping[int, Sequence[LogLine]]:
        log = self.logs.get(one.number, {})
        return {version: list(lines.values()) for version, lines in log.items()}

    def tell(self, row: Mapping[str, object]) -> None:
        number = len(self.log) + 1
        self.log.append(EventBatch(seq=number, transaction=number, **row))  # type: ignore[arg-type]

    def announce(self, topic: Topic) -> None:
        self.versions[topic] += 1

    def news(self, since: datetime, now: datetime) -> Versions:
        due = (one for one in self.jobs.values() if record.is_claimable(one.job, now))
        return Versions(
            dict(self.versions), any((one.job.eligible_at or now) > since for one in due)
        )

    def depth(self, now: datetime) -> QueueDepth:
        jobs = [one.job for one in self.jobs.values()]
        ages: dict[tuple[str, str], float] = {}
        for job in jobs:
            if record.is_claimable(job, now):
                kind, age_s = (job.namespace, job.type), now - (job.eligible_at or now)
                ages[kind] = max(ages.get(kind, 0.0), age_s.total_seconds())
        counts = Counter((job.namespace, job.type, job.state.value) for job in jobs)
        return QueueDepth(jobs=counts, oldest_age_s=ages)

    def events(self, after: int, limit: int) -> Sequence[EventBatch]:
        return self.log[after : after + limit]
