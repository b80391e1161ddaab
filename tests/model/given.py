"""What steps are made of: small sets of everything, so that histories collide."""

from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timedelta
from typing import Any, Final

from hypothesis import strategies as st
from tests.model.lockstep import IDS, NAMESPACES, Name, Pair
from tests.model.sides import CREATED_S, DELAYS_S, TTL_S, Side

from queue_operator.backends.protocol import Pause
from queue_operator.domain.dependencies import DependencyMode
from queue_operator.domain.job import Demand, Job, TypeDefaults
from queue_operator.domain.ordering import Priority
from queue_operator.domain.outcome import ErrorCategory, ErrorInfo, Outcome
from queue_operator.domain.retry import Backoff, BackoffStrategy
from queue_operator.domain.states import COUNTS_AS_RETRY, TERMINAL, Event, target

_BACKOFFS: Final = (
    Backoff(BackoffStrategy.CONSTANT, initial_delay_s=30.0),
    Backoff(BackoffStrategy.LINEAR, initial_delay_s=30.0, max_delay_s=180.0),
    Backoff(BackoffStrategy.EXPONENTIAL, initial_delay_s=60.0, max_delay_s=280.0),
    Backoff(BackoffStrategy.CUSTOM, delays_s=(30.0, 160.0)),
)
_PAYLOADS: Final = (
    (b"", "application/octet-stream"),
    (b'{"n": 1, "m": 2}', "application/json"),
    (b'{"m":2,"n":1.0}', "application/json"),
)
_ERRORS: Final = (
    None,
    ErrorInfo("boom"),
    ErrorInfo("no", ErrorCategory.PERMANENT, "E1", "line 1", {"k": "v"}),
    ErrorInfo("slow", ErrorCategory.TIMEOUT, "E2"),
)
_TAGS: Final = ("x", "y")


_PLAIN: Final[dict[str, Any]] = {field.name: field.default for field in fields(Job)} | {"type": "t"}


class Short:
    """Shown in a failing history as `repr` says, not with all its fields."""

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self))


@dataclass(frozen=True)
class NewJob(Short):
    """A submission. Times are seconds from the step that makes it."""

    name: Name
    created_s: float | None = None
    scheduled_s: float | None = None
    options: dict[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        told = {**self.options, "created_s": self.created_s, "scheduled_s": self.scheduled_s}
        given = [f"{key}={value!r}" for key, value in told.items() if value != _PLAIN.get(key)]
        return f"NewJob({', '.join(['/'.join(self.name), *given])})"

    def on(self, side: Side) -> Job:
        created, scheduled = (
            None if s is None else side.began + timedelta(seconds=s)
            for s in (self.created_s, self.scheduled_s)
        )
        space, job_id = self.name
        return Job(
            id=job_id, namespace=space, created_at=created, scheduled_at=scheduled, **self.options
        )


@dataclass(frozen=True)
class Told(Short):
    """An outcome. `whose` says which token it comes with."""

    name: Name
    whose: str
    outcome: Outcome

    def __repr__(self) -> str:
        usual = Outcome._field_defaults
        told = {k: v for k, v in self.outcome._asdict().items() if v != usual.get(k)}
        given = [f"{k}={v!r}" for k, v in told.items() if k not in ("job_id", "namespace")]
        return f"Told({', '.join(['/'.join(self.name), self.whose, *given])})"

    def on(self, side: Side, pair: Pair) -> Outcome:
        return self.outcome._replace(token=token(side, pair, self.name, self.whose))


def token(side: Side, pair: Pair, name: Name, whose: str) -> str | None:
    """The token that is meant, one that was never given where there is none."""
    mine = [n for n, claimed in enumerate(pair.claims) if claimed == name]
    found = {
        "current": mine[-1:],
        "stale": mine[-2:-1],
        "of another": [n for n in range(len(pair.claims)) if n not in mine][-1:],
    }
    if whose == "none":
        return None
    places = found.get(whose, [])
    return side.tokens[places[0]] if places else "never given"


def mostly(usual: Any, *others: Any) -> st.SearchStrategy[Any]:
    """The usual in two of three cases."""
    return st.sampled_from([*[usual] * 2 * max(len(others), 1), *others])


spaces = mostly("default", "other")
ids = st.sampled_from(IDS)
names = st.tuples(spaces, ids)
tags = st.frozensets(st.sampled_from(_TAGS), max_size=2)
few_tags = mostly(frozenset(), frozenset({"x"}), frozenset({"x", "y"}))
types = mostly(frozenset(), frozenset({"t"}), frozenset({"u"}))
workers = st.sampled_from(["w1", "w2"])
whose = mostly("current", "none", "stale", "of another", "garbage")
errors = st.sampled_from(_ERRORS)
results = st.sampled_from([None, b"", b"result"])
priorities = mostly(Priority.NORMAL, Priority.HIGH, Priority.CRITICAL, Priority.LOW, Priority.BULK)
_events = st.sampled_from(list(Event))
_gates = mostly(None, *DELAYS_S)
_max_attempts = st.sampled_from([None, 0, 1, 2])
_backoffs = mostly(None, *_BACKOFFS)
_callback_urls = mostly("", "https://example.com/done")
_modes = st.sampled_from(list(DependencyMode))
defaults = st.dictionaries(
    st.sampled_from(["t", "u"]),
    st.builds(
        TypeDefaults,
        max_attempts=st.sampled_from([None, 1, 3]),
        timeout_s=st.sampled_from([None, TTL_S]),
    ),
    max_size=1,
)
pauses = st.builds(
    Pause,
    namespace=spaces,
    type=st.sampled_from(["", "t", "u"]),
    reason=st.sampled_from(["", "too hot"]),
)
demands = st.builds(
    Demand,
    assignee_id=workers,
    limit=st.integers(1, 3),
    namespace=spaces,
    tags=few_tags,
    types=types,
    worker_name=st.sampled_from(["", "pod-1"]),
    host=st.sampled_from(["", "node-1"]),
)


def stored(pair: Pair) -> st.SearchStrategy[Name]:
    """Mostly a job that exists."""
    existing = sorted(pair.jobs)
    return st.one_of(*[st.sampled_from(existing)] * 5, names) if existing else names


def held(pair: Pair) -> st.SearchStrategy[Name]:
    """Mostly a job that a worker has, or had a while ago."""
    claimed = sorted(set(pair.claims) & pair.jobs.keys())
    return st.one_of(*[st.sampled_from(claimed)] * 3, stored(pair)) if claimed else stored(pair)


def ended_ids(pair: Pair) -> st.SearchStrategy[list[str]]:
    """Mostly ids of jobs that have ended."""
    ended = sorted({job_id for (_, job_id), job in pair.jobs.items() if job.state in TERMINAL})
    chosen = st.one_of(*[st.sampled_from(ended)] * 7, ids) if ended else ids
    return st.lists(chosen, max_size=2)


def _free(pair: Pair) -> st.SearchStrategy[Name]:
    """Mostly a name that no job has."""
    left = [(space, job_id) for space in NAMESPACES for job_id in IDS]
    free = [name for name in left if name not in pair.jobs]
    return st.one_of(*[st.sampled_from(free)] * 7, names) if free else names


@st.composite
def _parents(draw: st.DrawFn, pair: Pair, name: Name) -> tuple[str, ...]:
    """Mostly none, or some that exist."""
    if not draw(mostly(False, True)):
        return ()
    existing = [job_id for space, job_id in sorted(pair.jobs) if space == name[0]]
    chosen = st.one_of(*[st.sampled_from(existing)] * 4, ids) if existing else ids
    parents = draw(st.lists(chosen, unique=True, min_size=1, max_size=3))
    return tuple(parent for parent in parents if parent != name[1])


@st.composite
def new_jobs(draw: st.DrawFn, pair: Pair) -> NewJob:
    payload, content_type = draw(mostly(*_PAYLOADS))
    name = draw(_free(pair))
    gate, by_delay = draw(_gates), draw(st.booleans())
    options = {
        "type": draw(mostly("t", "u")),
        "payload": payload,
        "content_type": content_type,
        "tags": draw(tags),
        "priority": draw(priorities),
        "delay_s": gate if by_delay else None,
        "max_attempts": draw(_max_attempts),
        "timeout_s": draw(mostly(None, TTL_S, 330.0)),
        "backoff": draw(_backoffs),
        "correlation_id": draw(mostly("", "c")),
        "idempotency_key": draw(mostly("", "k1", "k2")),
        "callback_url": draw(_callback_urls),
        "suspended": draw(mostly(False, True)),
        "depends_on": draw(_parents(pair, name)),
        "dependency_mode": draw(_modes),
    }
    return NewJob(name, draw(mostly(None, *CREATED_S)), None if by_delay else gate, options)


@st.composite
def batches(draw: st.DrawFn, pair: Pair) -> list[NewJob]:
    """New jobs, now and then one of them twice under its key."""
    batch = draw(st.lists(new_jobs(pair), min_size=1, max_size=4))
    if draw(mostly(False, True)):
        first = batch[0]
        key = {"idempotency_key": "k1"}
        again = replace(first, name=draw(_free(pair)), options=first.options | key)
        batch = [replace(first, options=first.options | key), *batch[1:], again]
    return batch


@st.composite
def told(draw: st.DrawFn, pair: Pair) -> Told:
    """Mostly an outcome that the job's state allows."""
    name = draw(held(pair))
    state = pair.state(name)
    legal = [event for event in Event if state is not None and target(event, state)]
    event = draw(st.one_of(*[st.sampled_from(legal)] * 3, _events) if legal else _events)
    outcome = Outcome(
        name[1],
        event,
        namespace=name[0],
        result=draw(results),
        result_content_type=draw(mostly("application/octet-stream", "text/plain")),
        error=draw(errors),
        retry_after_s=draw(mostly(None, 0.0, 30.0)),
        worker_plane=draw(st.booleans()),
        reason=draw(mostly("", "enough")),
        reset_attempts=draw(mostly(False, True)),
        priority=draw(mostly(None, Priority.HIGH)),
    )
    return Told(name, draw(whose), outcome)


def in_one_call(batch: list[Told], pair: Pair) -> list[Told]:
    """The outcomes of `batch` of which a store may apply several at once.

    Those for one job apply in order, those for different jobs in any. Where the order can be
    seen only the first is taken: of what makes a job queue up anew, which a store may do in a
    transaction of its own, later than another's first; of a job that waits, where another is
    completed, which a store may do before all else; and of several parents, any of which may be
    named to the job that waits for them.
    """
    if len(batch) == 1:
        return batch
    completes = any(one.outcome.event is Event.COMPLETE for one in batch)
    chosen: dict[Name, list[Told]] = {}
    for one in batch:
        mine = chosen.setdefault(one.name, [])
        again = mine and one.outcome.event in COUNTS_AS_RETRY and one not in mine
        if not (again or (completes and pair.waits(one.name))):
            mine.append(one)
    tied = {n[0] for n, j in pair.jobs.items() if len(j.depends_on) > 1 and pair.waits(n)}
    first = {name[0]: name for name in reversed(chosen)}
    kept = [mine for name, mine in chosen.items() if name[0] not in tied or first[name[0]] == name]
    return [one for mine in kept for one in mine] or batch[:1]


def at(side: Side, seconds: float) -> datetime:
    """A time as seen from the step that runs."""
    return side.began + timedelta(seconds=seconds)
