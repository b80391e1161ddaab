"""Reading the log of events for all who follow jobs: what a store can be asked."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, Protocol, runtime_checkable

from queue_operator.backends.horizon import Horizon
from queue_operator.backends.positions import Place, Position
from queue_operator.domain.outcome import ErrorCategory
from queue_operator.domain.states import JobState
from queue_operator.domain.views import PHASE, Phase

Name = tuple[str, str]
"""Namespace and id of a job."""


class Kind(NamedTuple):
    """What jobs that are told of together have in common."""

    namespace: str
    type: str
    tags: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Happened:
    """One change of one job, by its number. `status` and `state` are None where it was deleted;
    `job_id` is "" where it was, and nobody wrote down whose number that is.
    """

    xid: int
    place: Place
    at: datetime
    event: str
    status: Phase | None
    state: JobState | None
    number: int
    job_id: str
    attempt: int
    kind: Kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Now:
    """How a job stands at a look."""

    number: int
    status: Phase
    state: JobState
    attempt: int
    at: datetime
    kind: Kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Where the log ends: of which database it is, and its last number; rows up to `above_seq` came
    with a copy; those up to `pruned_seq` are gone.
    """

    store: str
    horizon: Horizon
    highest: int
    above_seq: int
    pruned_seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What happened between two horizons, in the order of transactions and of their rows. Beyond
    `upto` there may be more that could be read now.
    """

    upto: Horizon
    highest: int
    events: Sequence[Happened]
    is_last: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """Jobs as the horizon sees them; those that do not exist are left out."""

    horizon: Horizon
    jobs: Mapping[Name, Now]


@runtime_checkable
class Followed(Protocol):
    """A log that many streams are told from, by one who reads it for all of them."""

    def mark(self) -> Awaitable[Mark]:
        """Where the log ends now."""
        ...

    def kept(self, positions: Sequence[Position]) -> Awaitable[list[bool]]:
        """Of which of them all can be told that came after: they are of this log as it lives now,
        and none of it is gone.
        """
        ...

    def look(self, names: Collection[Name]) -> Awaitable[Looked]:
        """Many jobs at one moment."""
        ...

    def step(
        self,
        since: Horizon,
        until: Horizon | None,
        above_seq: int,
        wanted: Callable[[Kind], bool],
        numbers: Collection[int],
        most: int,
    ) -> Awaitable[Step]:
        """What came after `since`, up to `until` or now: of kinds that are wanted, and of jobs by
        number. It tells of about `most` jobs, wanted or not, but of whole transactions.
        """
        ...


def is_kept(position: Position, mark: Mark) -> bool:
    """Whether a position is of the log that ends there, and nothing that came after it is gone."""
    return (
        position.store == mark.store
        and mark.pruned_seq <= position.highest
        and position.horizon.end_xid <= mark.horizon.end_xid
        # What is told of a transaction was committed by then.
        and all(xid < mark.horizon.end_xid for xid in position.partly)
    )


def status_of(state: JobState, category: str | None, blocked: bool, is_later: bool) -> Phase:
    """As `domain.views.phase`, of what a log knows."""
    if state is JobState.INITIAL_PENDING and blocked:
        return Phase.PENDING
    if state is JobState.INITIAL_PENDING and is_later:
        return Phase.DELAYED
    if state is JobState.DEAD_LETTER and category == ErrorCategory.PERMANENT:
        return Phase.FAILED
    return PHASE[state]
