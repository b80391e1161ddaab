"""Where a search finds its jobs: per kind of row one statement, for either order."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, Final, LiteralString

from psycopg import sql

from queue_operator.backends.postgres.assigned import STANDING
from queue_operator.backends.postgres.merging import ABOVE_ALL, Place
from queue_operator.backends.sql import load, render
from queue_operator.domain.outcome import ErrorCategory
from queue_operator.domain.states import ELIGIBLE, SLOT_HOLDING, TERMINAL, JobState
from queue_operator.domain.views import Phase

FIRST: Final = datetime.min.replace(tzinfo=UTC)
LAST: Final = datetime.max.replace(tzinfo=UTC)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_KINDS_OF_DEAD: Final = (frozenset({Phase.FAILED}), frozenset({Phase.DEAD_LETTER}))


@dataclass(frozen=True, slots=True)
class Source:
    """`states` that its jobs may have; of a `whole` one all lanes are one stream. `which` is the
    condition of an index. One that `classifies` has the category and the code of the error in
    columns of their own. One of a single `table` is counted there, in no order; `waits` says that
    its jobs may wait for others, and `by_turn` that their place in the line is what is in order.
    """

    statement: str
    states: frozenset[JobState]
    whole: bool = False
    which: LiteralString = ""
    classifies: bool = False
    table: LiteralString = ""
    waits: bool = False
    by_turn: bool = False


JOBS: Final = Source("search_jobs", frozenset(JobState))
WAITING: Final = Source(
    "search_waiting",
    frozenset({JobState.INITIAL_PENDING}),
    which=render("due AND state IN ({{INITIAL_PENDING}}) AND created_at = changed_at"),
    classifies=True,
    table="ready",
    waits=True,
    by_turn=True,
)
ASIDE: Final = Source(
    "search_aside",
    frozenset(ELIGIBLE),
    which=render("(NOT due OR state <> {{INITIAL_PENDING}} OR created_at <> changed_at)"),
    classifies=True,
    table="ready",
    waits=True,
)
RUNNING: Final = Source("search_running", frozenset(SLOT_HOLDING), whole=True)
ENDED: Final = Source(
    "search_ended",
    frozenset(TERMINAL) - {JobState.COMPLETED},
    which=render("state <> {{COMPLETED}}"),
    classifies=True,
    table="final",
)
EARLY: Final = Source(
    "search_ended",
    frozenset({JobState.COMPLETED}),
    which=render("state IN ({{COMPLETED}}) AND created_at > changed_at"),
)
FAILED: Final = Source(
    "search_failed",
    frozenset({JobState.FAILED_RETRY}),
    which=render("error_category IS NOT NULL AND state IN ({{FAILED_RETRY}})"),
    classifies=True,
    table="ready",
)
DEAD: Final = Source(
    "search_failed",
    frozenset({JobState.DEAD_LETTER}),
    which=render("state IN ({{DEAD_LETTER}})"),
    classifies=True,
    table="final",
)
DONE: Final = Source("search_done", frozenset({JobState.COMPLETED}), whole=True)
GATHERED: Final = Source("search_gathered", frozenset({JobState.COMPLETED}), whole=True)


@dataclass(frozen=True, slots=True)
class Order:
    """By creation, by last change, or by the failure of what failed."""

    by_change: bool
    descending: bool
    by_failure: bool = False

    def first(self, after: datetime, before: datetime) -> Place:
        """The place before the first job between two times, both exclusive."""
        return (place_of(before), 0) if self.descending else (place_of(after), ABOVE_ALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """What must hold of a job beside its lane; times are exclusive bounds. `phases` tell apart
    the jobs of some of the `states`, see `views.refining`.
    """

    states: frozenset[JobState]
    created_after: datetime = FIRST
    created_before: datetime = LAST
    changed_after: datetime = FIRST
    changed_before: datetime = LAST
    failed_after: datetime = FIRST
    failed_before: datetime = LAST
    phases: frozenset[Phase] = frozenset()
    failed: bool | None = None
    categories: frozenset[ErrorCategory] = frozenset()
    code: str = ""

    @property
    def only_states(self) -> bool:
        """Nothing is asked but the state, so that the counts by state are the answer."""
        return self == Condition(states=self.states)

    @property
    def only_dead(self) -> bool:
        """Nothing is asked but the state, and of the dead, which kind they are of."""
        return self.phases in _KINDS_OF_DEAD and self == Condition(
            states=self.states, phases=self.phases
        )

    def bounds(self, order: Order) -> tuple[datetime, datetime]:
        if order.by_failure:
            return self.failed_after, self.failed_before
        if order.by_change:
            return self.changed_after, self.changed_before
        return self.created_after, self.created_before

    def has_all(self, source: "Source", order: Order) -> bool:
        """Whether all of a source matches that is between the `bounds` of the order."""
        # A line also holds what is due again, which is told with what waits aside.
        if source.whole or source.by_turn or not source.states <= self.states:
            return False
        after, before = self.bounds(order)
        if order.by_change:
            between = Condition(states=self.states, changed_after=after, changed_before=before)
        else:
            between = Condition(states=self.states, created_after=after, created_before=before)
        return self == between

    def parameters(self) -> dict[str, Any]:
        everything = self.states == frozenset(JobState)
        return {
            "states": None if everything else [state.value for state in self.states],
            "created_after": self.created_after,
            "created_before": self.created_before,
            "changed_after": self.changed_after,
            "changed_before": self.changed_before,
            "failed_after": self.failed_after,
            "failed_before": self.failed_before,
            "refined": bool(self.phases),
            "pending": Phase.PENDING in self.phases,
            "delayed": Phase.DELAYED in self.phases,
            "scheduled": Phase.SCHEDULED in self.phases,
            "permanent": Phase.FAILED in self.phases,
            "used_up": Phase.DEAD_LETTER in self.phases,
            "failed": self.failed,
            "categories": [one.value for one in self.categories] or None,
            "code": self.code or None,
        }

    def places(self) -> dict[str, bool]:
        """Where a job must be looked up to know whether it matches, if at all."""
        plain = self == Condition(
            states=frozenset(JobState),
            created_after=self.created_after,
            created_before=self.created_before,
        )
        return {
            "plain": plain,
            "in_final": not plain and not self.states.isdisjoint(TERMINAL),
            "in_ready": not plain and not self.states.isdisjoint(ELIGIBLE),
            "in_lease": not plain and not self.states.isdisjoint(SLOT_HOLDING),
        }


def place_of(at: datetime) -> int:
    return (at - _EPOCH) // _MICROSECOND


def time_of(place: int) -> datetime:
    return _EPOCH + place * _MICROSECOND


@cache
def statement(source: Source, order: Order) -> bytes:
    return _composed(source, order).as_bytes(None)


@cache
def counting(source: Source, order: Order) -> bytes:
    """The same, but for the number of matches."""
    if source.table:
        return _counting_lanes(source, order).as_bytes(None)
    if source is JOBS:
        jobs = sql.SQL(load(__package__, "search_count_jobs"))
        return jobs.format(condition=_condition(source)).as_bytes(None)
    outer = sql.SQL(load(__package__, "search_count"))
    return outer.format(source=_composed(source, order)).as_bytes(None)


def _counting_lanes(source: Source, order: Order) -> sql.Composed:
    key = "changed_at" if order.by_change else "created_at"
    return sql.SQL(load(__package__, "search_count_lanes")).format(
        source=sql.Identifier(source.table),
        which=sql.SQL(source.which),
        key=sql.Identifier("order_time" if source.by_turn else key),
        blocked=sql.SQL("blocked" if source.waits else "false"),
        condition=_condition(source),
    )


def _composed(source: Source, order: Order) -> sql.Composed:
    words: dict[str, sql.Composable] = {
        "key": sql.Identifier("changed_at" if order.by_change else "created_at"),
        "direction": sql.SQL("DESC" if order.descending else "ASC"),
        "beyond": sql.SQL("<" if order.descending else ">"),
        "before": sql.SQL(">" if order.descending else "<"),
        "which": sql.SQL(source.which),
        "condition": _condition(source),
    }
    if source.table:
        words["source"] = sql.Identifier(source.table)
    return sql.SQL(load(__package__, source.statement, standing=STANDING)).format(**words)


def _condition(source: Source) -> sql.Composed:
    condition = sql.SQL(load(__package__, "search_condition"))
    if source.classifies:
        category, code = sql.SQL("moving.error_category"), sql.SQL("moving.error_code")
    else:
        category, code = sql.SQL("moving.error ->> 'category'"), sql.SQL("moving.error ->> 'code'")
    return condition.format(category=category, code=code)
