"""Where an engine keeps its jobs: what it can look up, add and remove."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple, Protocol

from queue_operator.backends.intake import Holder, Name
from queue_operator.backends.outbox import Outbox
from queue_operator.backends.protocol import (
    EventBatch,
    FailurePage,
    FailureSearch,
    JobPage,
    JobSearch,
    LogLine,
    Pause,
    Topic,
)
from queue_operator.backends.stored import Stored
from queue_operator.backends.streams import Kind
from queue_operator.backends.tallying import Ledger
from queue_operator.backends.tokens import Buckets
from queue_operator.domain.job import Demand, Job
from queue_operator.domain.log_cursor import Span
from queue_operator.domain.states import JobState


class Glimpse(NamedTuple):
    """What those see of a job who follow it; `at` is when it was changed, `category` that of its
    error, and `waits` says that it does for others.
    """

    number: int
    job_id: str
    kind: Kind
    state: JobState
    attempt: int
    at: datetime
    category: str | None
    waits: bool
    eligible_at: datetime | None

    def is_later(self, now: datetime) -> bool:
        return self.eligible_at is not None and self.eligible_at > now


class Shelf(Ledger, Buckets, Protocol):
    """Jobs are changed in place: whoever was given one by the shelf changes what is stored.
    All lists of jobs are in order of submission unless they say otherwise.
    """

    swept_at: datetime | None
    resumed_at: datetime | None

    @property
    def outbox(self) -> Outbox:
        """What is told of jobs that have ended."""
        ...

    def get(self, name: Name) -> Stored | None: ...

    def holds(self, name: Name) -> bool: ...

    def add(self, job: Job) -> Stored:
        """Gives the job the next number."""
        ...

    def remove(self, chosen: Collection[Stored]) -> None: ...

    def holder_of(self, key: Name) -> Holder | None:
        """The job that has an idempotency key."""
        ...

    def hold(self, key: Name, holder: Holder) -> None: ...

    def claimable(self, wanted: Demand, now: datetime, limit: int) -> list[Stored]:
        """Jobs that a demand may get now, in the order of claims. None that is paused."""
        ...

    def ahead(self, one: Stored, now: datetime, bound: int) -> int:
        """How many jobs of the namespace and type of one that waits are eligible and come before
        it in the order of claims, counted up to a bound. Pauses make no difference.
        """
        ...

    def chosen(self, namespace: str, tags: frozenset[str], ids: Collection[str]) -> list[Stored]:
        """Those with these ids, and those that carry all tags (unless there are none) and have
        not ended.
        """
        ...

    def ended_ids(self, namespace: str, tags: frozenset[str]) -> Collection[str]:
        """Of those that carry all tags (none do without any) and have ended."""
        ...

    def ended(self, namespace: str, tags: frozenset[str]) -> Iterable[Sequence[Stored]]:
        """The same as jobs, in parts, each of which is removed before the next is asked for."""
        ...

    def children_of(self, parent: Stored) -> list[Stored]:
        """Those in INITIAL_PENDING that depend on the parent."""
        ...

    def leased(self) -> list[Stored]: ...

    def used_up(self, now: datetime) -> list[Stored]:
        """Lost jobs without an attempt left whose time for a late outcome is over."""
        ...

    def completed_before(self, at: datetime, namespace: str | None) -> Iterable[Sequence[Stored]]:
        """In parts, as `ended`, but the oldest first."""
        ...

    def search(self, search: JobSearch, now: datetime) -> JobPage: ...

    def search_failures(self, search: FailureSearch) -> FailurePage: ...

    def counts(self, namespace: str, tags: frozenset[str]) -> tuple[Mapping[JobState, int], int]:
        """Jobs by state, and the sum of their retries."""
        ...

    def pauses(self, namespace: str | None) -> list[Pause]:
        """By namespace and type."""
        ...

    def put_pause(self, pause: Pause) -> None:
        """In the place of one of the same namespace and type."""
        ...

    def drop_pause(self, namespace: str, type: str) -> bool:
        """Whether there was one."""
        ...

    def add_lines(self, one: Stored, version: int, lines: Sequence[LogLine]) -> None:
        """Adds to the log of one attempt, of which the newest stay. A line may come twice."""
        ...

    def lines_of(self, one: Stored, spans: Sequence[Span]) -> Mapping[int, Sequence[LogLine]]:
        """By version, in order of their numbers."""
        ...

    def tell(self, row: Mapping[str, object]) -> None:
        """Appends to the event log; the fields are those of EventBatch but for its numbers."""
        ...

    def announce(self, topic: Topic) -> None:
        """Tells those who listen that something of a topic changed, once that is stored."""
        ...

    def events(self, after: int, limit: int) -> Sequence[EventBatch]: ...

    def last_event(self) -> EventBatch | None: ...

    @property
    def log_id(self) -> str:
        """Tells the event log from those of other stores: eight hexadecimal digits."""
        ...

    def glimpse(self, names: Collection[Name]) -> list[Glimpse]:
        """Jobs by their names, in any order."""
        ...

    def glimpse_numbered(self, numbers: Collection[int]) -> list[Glimpse]:
        """Jobs by their numbers, in any order."""
        ...
