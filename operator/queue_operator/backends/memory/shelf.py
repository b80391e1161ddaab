"""A shelf in memory: a dictionary of jobs."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from threading import Lock

from queue_operator.backends.intake import Holder, Name
from queue_operator.backends.listening import Versions
from queue_operator.backends.protocol import (
    EventBatch,
    FailurePage,
    FailureSearch,
    JobPage,
    JobSearch,
    LogLine,
    Pause,
    QueueDepth,
    Topic,
    WorkerSession,
)
from queue_operator.backends.searching import page, page_of_failures
from queue_operator.backends.stored import Stored
from queue_operator.backends.tallies import JobKind, Part, Standing, Tally
from queue_operator.backends.tallying import standing_of
from queue_operator.backends.tokens import Bucket
from queue_operator.domain import record
from queue_operator.domain.job import Demand, Job
from queue_operator.domain.running import LOG_ATTEMPTS, newest_lines
from queue_operator.domain.states import SLOT_HOLDING, TERMINAL, JobState
from queue_operator.domain.tags import matches

_Entry = tuple[str, int, datetime, JobKind]


@dataclass
class MemoryShelf:
    """What all backends on one store share. One that is not `reachable` is Unavailable. Whoever
    reads or changes it holds the `lock`.
    """

    jobs: dict[Name, Stored] = field(default_factory=dict)
    keys: dict[Name, Holder] = field(default_factory=dict)
    log: list[EventBatch] = field(default_factory=list)
    versions: Counter[str] = field(default_factory=Counter)
    sessions: dict[str, WorkerSession] = field(default_factory=dict)
    logs: dict[int, dict[int, dict[int, LogLine]]] = field(default_factory=dict)
    paused: dict[Name, Pause] = field(default_factory=dict)
    ledger: dict[_Entry, Tally] = field(default_factory=dict)
    buckets: dict[str, Bucket] = field(default_factory=dict)
    numbers: int = 0
    swept_at: datetime | None = None
    resumed_at: datetime | None = None
    reachable: bool = True
    lock: Lock = field(default_factory=Lock, repr=False, compare=False)

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
            and not self._is_paused(one.job)
            and (not wanted.types or one.job.type in wanted.types)
            and matches(wanted.tags, one.job.tags)
        ]
        return sorted(found, key=lambda one: (record.place(one.job), one.number))[:limit]

    def _is_paused(self, job: Job) -> bool:
        names = ((job.namespace, ""), (job.namespace, job.type))
        return bool(self.paused) and any(name in self.paused for name in names)

    def ahead(self, one: Stored, now: datetime, bound: int) -> int:
        mine = record.place(one.job), one.number
        before = [
            other
            for other in self._all(one.job.namespace)
            if other.job.type == one.job.type
            and record.is_claimable(other.job, now)
            and (record.place(other.job), other.number) < mine
        ]
        return min(len(before), bound)

    def chosen(self, namespace: str, tags: frozenset[str], ids: Collection[str]) -> list[Stored]:
        named = set(ids)
        return [
            one
            for one in self._all(namespace)
            if one.job.id in named or (one.job.state not in TERMINAL and _carries(one, tags))
        ]

    def ended_ids(self, namespace: str, tags: frozenset[str]) -> list[str]:
        return [one.job.id for some in self.ended(namespace, tags) for one in some]

    def ended(self, namespace: str, tags: frozenset[str]) -> Sequence[list[Stored]]:
        ended = (one for one in self._all(namespace) if one.job.state in TERMINAL)
        return ([one for one in ended if _carries(one, tags)],)

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

    def completed_before(self, at: datetime, namespace: str | None) -> Sequence[list[Stored]]:
        done = [one for one in self.jobs.values() if one.job.state is JobState.COMPLETED]
        mine = [one for one in done if namespace in (None, one.job.namespace)]
        return ([one for one in mine if (one.job.finalized_at or at) < at],)

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

    def pauses(self, namespace: str | None) -> list[Pause]:
        return [p for (space, _), p in sorted(self.paused.items()) if namespace in (None, space)]

    def put_pause(self, pause: Pause) -> None:
        self.paused[pause.namespace, pause.type] = pause

    def drop_pause(self, namespace: str, type: str) -> bool:
        return self.paused.pop((namespace, type), None) is not None

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

    def tally(self, namespace: str, span_s: int, begins_at: datetime, kind: JobKind) -> Tally:
        return self.ledger.setdefault((namespace, span_s, begins_at, kind), Tally())

    def tallies(self, namespace: str, parts: Sequence[Part]) -> list[tuple[JobKind, Tally]]:
        return [
            (kind, tally)
            for (name, span_s, begins_at, kind), tally in self.ledger.items()
            if name == namespace
            and any(p.span_s == span_s and p.begins_at <= begins_at < p.ends_at for p in parts)
        ]

    def standing(self, namespace: str, now: datetime) -> Mapping[JobKind, Standing]:
        live = (one.job for one in self._all(namespace) if one.job.state not in TERMINAL)
        return standing_of(live, now)

    def forget_tallies(self, span_s: int, oldest: datetime) -> None:
        old = [entry for entry in self.ledger if entry[1] == span_s and entry[2] < oldest]
        for entry in old:
            del self.ledger[entry]

    def bucket(self, name: str) -> Bucket | None:
        return self.buckets.get(name)

    def fill_bucket(self, name: str, bucket: Bucket) -> None:
        self.buckets[name] = bucket

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


def _carries(one: Stored, tags: frozenset[str]) -> bool:
    return bool(tags) and matches(tags, one.job.tags)
