"""A shelf in memory: a dictionary of jobs, and what they are looked up by."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from heapq import nsmallest
from secrets import token_hex
from threading import Lock
from typing import Final

from queue_operator.backends.intake import Holder, Name
from queue_operator.backends.listening import Versions
from queue_operator.backends.lost_workers import LostWorker
from queue_operator.backends.memory.outbox import MemoryOutbox
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
from queue_operator.backends.shelf import Glimpse
from queue_operator.backends.stored import Stored
from queue_operator.backends.streams import Kind
from queue_operator.backends.tallies import JobKind, Part, Standing, Tally
from queue_operator.backends.tallying import standing_of
from queue_operator.backends.tokens import Bucket
from queue_operator.domain import record
from queue_operator.domain.job import Demand, Job
from queue_operator.domain.log_cursor import Span
from queue_operator.domain.running import LOG_ATTEMPTS, newest_lines
from queue_operator.domain.states import ELIGIBLE, SLOT_HOLDING, TERMINAL, JobState
from queue_operator.domain.tags import matches

_Entry = tuple[str, int, datetime, JobKind]
_Jobs = dict[int, Stored]
_LIVE: Final = frozenset(JobState).difference(TERMINAL)


class _Index:
    """Jobs by number, by namespace and state, and those that wait by the parents that they listed,
    each by its number. So a call looks at what it asks for, however many jobs have ended.
    """

    def __init__(self) -> None:
        self.numbered: _Jobs = {}
        self._placed: defaultdict[JobState, defaultdict[str, _Jobs]]
        self._placed = defaultdict(lambda: defaultdict(dict))
        self._children: defaultdict[int, _Jobs] = defaultdict(dict)

    def add(self, one: Stored) -> None:
        self.numbered[one.number] = one
        self._placed[one.job.state][one.job.namespace][one.number] = one

    def moved(self, one: Stored, before: JobState) -> None:
        self._leave(one, before)
        self.add(one)

    def linked(self, one: Stored, parent: int) -> None:
        self._children[parent][one.number] = one

    def remove(self, one: Stored) -> None:
        self._leave(one, one.job.state)
        del self.numbered[one.number]
        self._children.pop(one.number, None)
        for edge in one.edges:
            if children := self._children.get(edge.number):
                children.pop(one.number, None)

    def _leave(self, one: Stored, state: JobState) -> None:
        spaces = self._placed[state]
        del spaces[one.job.namespace][one.number]
        if not spaces[one.job.namespace]:
            del spaces[one.job.namespace]

    def within(self, states: Iterable[JobState], namespace: str | None) -> list[Stored]:
        """In order of submission; of all namespaces for None."""
        found: list[Stored] = []
        for state in states:
            spaces = self._placed[state]
            mine = spaces.values() if namespace is None else [spaces.get(namespace, {})]
            found += [one for jobs in mine for one in jobs.values()]
        return sorted(found, key=_number)

    def children_of(self, parent: int) -> list[Stored]:
        return sorted(self._children.get(parent, {}).values(), key=_number)


def _number(one: Stored) -> int:
    return one.number


@dataclass(slots=True, kw_only=True)
class _Indexed(Stored):
    """Keeps its place in the index up to date."""

    index: _Index = field(repr=False, compare=False)

    def become(self, job: Job, event: str, now: datetime, reason: str = "") -> None:
        before = self.job.state
        Stored.become(self, job, event, now, reason)
        self.index.moved(self, before)

    def depend_on(self, parent: Stored, name: str) -> None:
        Stored.depend_on(self, parent, name)
        self.index.linked(self, parent.number)


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
    lost: dict[str, LostWorker] = field(default_factory=dict)
    logs: dict[int, dict[int, dict[int, LogLine]]] = field(default_factory=dict)
    paused: dict[Name, Pause] = field(default_factory=dict)
    ledger: dict[_Entry, Tally] = field(default_factory=dict)
    buckets: dict[str, Bucket] = field(default_factory=dict)
    outbox: MemoryOutbox = field(default_factory=MemoryOutbox)
    numbers: int = 0
    swept_at: datetime | None = None
    resumed_at: datetime | None = None
    reachable: bool = True
    log_id: str = field(default_factory=lambda: token_hex(4), repr=False, compare=False)
    lock: Lock = field(default_factory=Lock, repr=False, compare=False)
    _index: _Index = field(default_factory=_Index, repr=False, compare=False)

    def get(self, name: Name) -> Stored | None:
        return self.jobs.get(name)

    def holds(self, name: Name) -> bool:
        return name in self.jobs

    def add(self, job: Job) -> Stored:
        self.numbers += 1
        one = _Indexed(number=self.numbers, job=job, index=self._index)
        self.jobs[job.namespace, job.id] = one
        self._index.add(one)
        return one

    def remove(self, chosen: Collection[Stored]) -> None:
        for one in chosen:
            del self.jobs[one.job.namespace, one.job.id]
            self._index.remove(one)
            self.keys.pop((one.job.namespace, one.job.idempotency_key), None)
            self.logs.pop(one.number, None)

    def holder_of(self, key: Name) -> Holder | None:
        return self.keys.get(key)

    def hold(self, key: Name, holder: Holder) -> None:
        self.keys[key] = holder

    def claimable(self, wanted: Demand, now: datetime, limit: int) -> list[Stored]:
        found = (
            one
            for one in self._index.within(ELIGIBLE, wanted.namespace)
            if record.is_claimable(one.job, now)
            and not self._is_paused(one.job)
            and (not wanted.types or one.job.type in wanted.types)
            and matches(wanted.tags, one.job.tags)
        )
        return nsmallest(limit, found, key=lambda one: (record.place(one.job), one.number))

    def _is_paused(self, job: Job) -> bool:
        names = ((job.namespace, ""), (job.namespace, job.type))
        return bool(self.paused) and any(name in self.paused for name in names)

    def ahead(self, one: Stored, now: datetime, bound: int) -> int:
        mine = record.place(one.job), one.number
        before = [
            other
            for other in self._index.within(ELIGIBLE, one.job.namespace)
            if other.job.type == one.job.type
            and record.is_claimable(other.job, now)
            and (record.place(other.job), other.number) < mine
        ]
        return min(len(before), bound)

    def chosen(self, namespace: str, tags: frozenset[str], ids: Collection[str]) -> list[Stored]:
        named = {(namespace, job_id) for job_id in ids}
        found = {one.number: one for name in named if (one := self.jobs.get(name)) is not None}
        for one in self._index.within(_LIVE, namespace) if tags else ():
            if _carries(one, tags):
                found[one.number] = one
        return [found[number] for number in sorted(found)]

    def ended_ids(self, namespace: str, tags: frozenset[str]) -> list[str]:
        return [one.job.id for some in self.ended(namespace, tags) for one in some]

    def ended(self, namespace: str, tags: frozenset[str]) -> Sequence[list[Stored]]:
        ended = self._index.within(TERMINAL, namespace) if tags else []
        return ([one for one in ended if _carries(one, tags)],)

    def children_of(self, parent: Stored) -> list[Stored]:
        children = self._index.children_of(parent.number)
        return [one for one in children if one.job.state is JobState.INITIAL_PENDING]

    def leased(self) -> list[Stored]:
        return self._index.within(SLOT_HOLDING, None)

    def used_up(self, now: datetime) -> list[Stored]:
        lost = self._index.within((JobState.UNKNOWN_RETRY,), None)
        used = [one for one in lost if record.is_used_up(one.job)]
        return [one for one in used if (one.job.eligible_at or now) <= now]

    def completed_before(self, at: datetime, namespace: str | None) -> Sequence[list[Stored]]:
        done = self._index.within((JobState.COMPLETED,), namespace)
        return ([one for one in done if (one.job.finalized_at or at) < at],)

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
        return self._index.within(JobState, namespace)

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

    def lines_of(self, one: Stored, spans: Sequence[Span]) -> Mapping[int, Sequence[LogLine]]:
        found: dict[int, list[LogLine]] = {}
        for version, log in self.logs.get(one.number, {}).items():
            for span in spans:
                if span.version <= version < span.until:
                    read = span.line if version == span.version else 0
                    if lines := [line for line in log.values() if line.number > read]:
                        found[version] = lines
        return found

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
        live = (one.job for one in self._index.within(_LIVE, namespace))
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
        due = (
            one for one in self._index.within(ELIGIBLE, None) if record.is_claimable(one.job, now)
        )
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

    def last_event(self) -> EventBatch | None:
        return self.log[-1] if self.log else None

    def glimpse(self, names: Collection[Name]) -> list[Glimpse]:
        return [_glimpse(one) for name in names if (one := self.jobs.get(name)) is not None]

    def glimpse_numbered(self, numbers: Collection[int]) -> list[Glimpse]:
        jobs = self._index.numbered
        return [_glimpse(one) for number in numbers if (one := jobs.get(number)) is not None]


def _glimpse(one: Stored) -> Glimpse:
    job = one.job
    return Glimpse(
        number=one.number,
        job_id=job.id,
        kind=Kind(job.namespace, job.type, job.tags),
        state=job.state,
        attempt=job.attempt,
        at=job.updated_at or one.transitions[-1].at,
        category=None if job.error is None else job.error.category.value,
        waits=job.waiting_for_dependencies,
        eligible_at=job.eligible_at,
    )


def _carries(one: Stored, tags: frozenset[str]) -> bool:
    return bool(tags) and matches(tags, one.job.tags)
