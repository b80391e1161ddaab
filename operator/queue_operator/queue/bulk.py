"""One change to many jobs, named by their ids or by a filter, a batch at a time."""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Generic, Protocol, TypeVar, runtime_checkable

from queue_operator.backends.protocol import (
    FailurePage,
    Failures,
    FailureSearch,
    JobPage,
    JobSearch,
    Lookup,
    Search,
)
from queue_operator.domain.errors import InvalidTransition, JobNotFound, QueueError
from queue_operator.domain.job import Job
from queue_operator.domain.ordering import Priority
from queue_operator.domain.outcome import Outcome
from queue_operator.domain.states import TERMINAL, Event, JobState, sources
from queue_operator.domain.views import Phase
from queue_operator.queue.protocol import HostedQueue

MOST_JOBS: Final = 10_000
"""How many jobs one request changes at most."""
STEP: Final = 1000
"""How many jobs one statement changes."""
_TRIES: Final = 3

_LIVE: Final = frozenset(JobState) - frozenset(TERMINAL)
_STOPPING: Final = frozenset({JobState.CANCELLING})

Gone = Callable[[], Awaitable[bool]]
"""Whether nobody waits for the answer any more."""
S = TypeVar("S", JobSearch, FailureSearch)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection(Generic[S]):
    """Either jobs by id, or the first `most` of what a search finds, both of `namespace`."""

    namespace: str
    job_ids: tuple[str, ...] = ()
    search: S | None = None
    most: int = MOST_JOBS


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryOptions:
    """How jobs are tried again; None leaves a priority, or means no delay."""

    reset_attempts: bool = False
    priority: Priority | None = None
    delay_s: float | None = None


@dataclass(slots=True, kw_only=True)
class BulkAnswer:
    """`requested` jobs were meant: `changed`, `skipped` because there was nothing to do or it is
    not possible in their state, or failed with one of the `errors`. `has_more`: others match the
    filter. The same request finds those it changed again where they still match it, such as jobs
    that fail again. `refused` says of those of the skipped whose change tells it why.
    """

    requested: int = 0
    changed: int = 0
    skipped: int = 0
    errors: dict[str, QueueError] = field(default_factory=dict)
    has_more: bool = False
    refused: dict[str, InvalidTransition] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What became of the jobs of one statement; those without an error were skipped. `missing`
    are ids of no job, beside those of `errors`; None where the change does not say.
    """

    changed: int = 0
    missing: frozenset[str] | None = None
    errors: Mapping[str, QueueError] = field(default_factory=dict)
    refused: Mapping[str, InvalidTransition] = field(default_factory=dict)


@runtime_checkable
class Store(Lookup, Search, Failures, Protocol):
    """What is asked of the store."""


class Change(Protocol[S]):
    """Something that is done to jobs."""

    async def apply(self, job_ids: Sequence[str], namespace: str) -> Step: ...

    def foresee(self, jobs: Iterable[Job]) -> Step:
        """What `apply` would do to jobs that are as these."""
        ...

    def passes(self, search: S) -> Sequence[S]:
        """The searches that together find what a filter means."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancel:
    """Of a filter's jobs those that have not ended; those asked to stop already only if it is
    `force`, since nothing is new to the others.
    """

    queue: HostedQueue
    force: bool = False
    reason: str = ""

    async def apply(self, job_ids: Sequence[str], namespace: str) -> Step:
        answer = await self.queue.cancel_jobs(
            (), job_ids, namespace=namespace, force=self.force, reason=self.reason
        )
        return Step(changed=len(answer.cancelled_job_ids))

    def foresee(self, jobs: Iterable[Job]) -> Step:
        return Step(changed=sum(job.state in _LIVE for job in jobs))

    def passes(self, search: JobSearch) -> Sequence[JobSearch]:
        again = [_within(search, _STOPPING)] if self.force else []
        return [_within(search, _LIVE - _STOPPING), *again]


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """RETRY_NOW. A filter that names no states means jobs that have ended."""

    queue: HostedQueue
    options: RetryOptions

    async def apply(self, job_ids: Sequence[str], namespace: str) -> Step:
        answers = await self.queue.retry_jobs(
            [retry_of(one, namespace, self.options) for one in job_ids]
        )
        errors = {
            answer.job_id: answer.error
            for answer in answers
            if answer.error is not None and not isinstance(answer.error, InvalidTransition)
        }
        changed = sum(answer.error is None for answer in answers)
        refused = {
            answer.job_id: answer.error
            for answer in answers
            if isinstance(answer.error, InvalidTransition)
        }
        return Step(changed=changed, missing=frozenset(), errors=errors, refused=refused)

    def foresee(self, jobs: Iterable[Job]) -> Step:
        changed, refused = 0, {}
        for job in jobs:
            if is_retriable(job):
                changed += 1
            else:
                refused[job.id] = InvalidTransition(job.id, job.state, Event.RETRY_NOW)
        return Step(changed=changed, refused=refused)

    def passes(self, search: FailureSearch) -> Sequence[FailureSearch]:
        asked = search.phases or frozenset({Phase.FAILED, Phase.DEAD_LETTER})
        ended = asked - {Phase.RETRYING}
        return [replace(search, phases=part, cursor="") for part in (ended, asked - ended) if part]


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete:
    """Of a filter's jobs those that have ended."""

    queue: HostedQueue
    store: Lookup

    async def apply(self, job_ids: Sequence[str], namespace: str) -> Step:
        for _ in range(_TRIES):
            found = await self.store.look_up(job_ids, namespace=namespace)
            ended = [one for one in job_ids if one in found and found[one].state in TERMINAL]
            missing = frozenset(job_ids).difference(found)
            if not ended:
                return Step(missing=missing)
            try:
                deleted = await self.queue.delete_jobs((), ended, namespace=namespace)
            except InvalidTransition:
                continue  # Somebody retried one of them meanwhile.
            return Step(changed=deleted, missing=missing)
        return Step(missing=missing)

    def foresee(self, jobs: Iterable[Job]) -> Step:
        return Step(changed=sum(job.state in TERMINAL for job in jobs))

    def passes(self, search: JobSearch) -> Sequence[JobSearch]:
        return [_within(search, frozenset(TERMINAL))]


def is_retriable(job: Job) -> bool:
    """Whether RETRY_NOW is possible: UNSCHEDULED only where SKIP put it there."""
    if job.state is JobState.UNSCHEDULED:
        return job.reason == Event.SKIP
    return job.state in sources(Event.RETRY_NOW)


def retry_of(job_id: str, namespace: str, options: RetryOptions) -> Outcome:
    """The outcome that tries the job again."""
    return Outcome(
        job_id,
        Event.RETRY_NOW,
        namespace,
        retry_after_s=options.delay_s,
        reset_attempts=options.reset_attempts,
        priority=options.priority,
    )


def _within(search: JobSearch, states: frozenset[JobState]) -> JobSearch:
    return replace(search, states=states, cursor="")


async def change_jobs(
    store: Store,
    change: Change[S],
    chosen: Selection[S],
    *,
    dry_run: bool,
    gone: Gone,
    answer: BulkAnswer | None = None,
) -> BulkAnswer:
    """Applies the change, or with `dry_run` tells what it would do. Stops between two statements
    once the caller has gone. An `answer` is filled as the work goes on, so that after an error it
    tells what was done.
    """
    answer = BulkAnswer() if answer is None else answer
    if chosen.search is None:
        await _by_id(store, change, chosen, dry_run, gone, answer)
        return answer
    search = replace(chosen.search, limit=min(STEP, chosen.most, MOST_JOBS))
    chosen = replace(chosen, most=min(chosen.most, MOST_JOBS))
    passes = change.passes(search)
    if dry_run:
        await _foresee(store, passes, chosen.most, answer)
    else:
        await _by_filter(store, change, chosen, passes, gone, answer)
    return answer


async def _by_id(
    store: Store,
    change: Change[S],
    chosen: Selection[S],
    dry_run: bool,
    gone: Gone,
    answer: BulkAnswer,
) -> None:
    for ids in _steps(tuple(dict.fromkeys(chosen.job_ids))):
        if await gone():
            break
        if dry_run:
            found = await store.look_up(ids, namespace=chosen.namespace)
            absent = frozenset(ids).difference(found)
            step = replace(change.foresee(found.values()), missing=absent)
        else:
            step = await change.apply(ids, chosen.namespace)
        errors = dict(step.errors)
        if step.changed + len(errors) < len(ids):
            missing = step.missing
            if missing is None:
                found = await store.look_up(ids, namespace=chosen.namespace)
                missing = frozenset(ids).difference(found, errors)
            errors |= {one: JobNotFound(one, chosen.namespace) for one in ids if one in missing}
        answer.refused |= step.refused
        _add(answer, len(ids), step.changed, errors)


async def _by_filter(
    store: Store,
    change: Change[S],
    chosen: Selection[S],
    passes: Sequence[S],
    gone: Gone,
    answer: BulkAnswer,
) -> None:
    # What an earlier pass changed may be found by a later one.
    given = set[str]()
    for one in passes:
        cursor = None
        while cursor != "" and not answer.has_more and not await gone():
            page = await _page(store, replace(one, cursor=cursor or "", count=False))
            cursor = page.next_cursor
            found = [job.id for job in page.jobs if job.id not in given]
            room = chosen.most - answer.requested
            if room and found:
                step = await change.apply(found[:room], chosen.namespace)
                answer.refused |= step.refused
                _add(answer, len(found[:room]), step.changed, step.errors)
                given.update(found[:room])
            answer.has_more = len(found) > room


async def _foresee(store: Store, passes: Sequence[S], most: int, answer: BulkAnswer) -> None:
    count = 0
    for one in passes:
        page = await _page(store, replace(one, limit=1))
        count += page.total_count or 0
        exact = not isinstance(page, JobPage) or page.total_is_exact
        answer.has_more |= not exact or count > most
    answer.requested = answer.changed = min(count, most)


async def _page(store: Store, search: JobSearch | FailureSearch) -> JobPage | FailurePage:
    if isinstance(search, JobSearch):
        return await store.search_jobs(search)
    return await store.search_failures(search)


def _add(
    answer: BulkAnswer, requested: int, changed: int, errors: Mapping[str, QueueError]
) -> None:
    answer.requested += requested
    answer.changed += changed
    answer.skipped += requested - changed - len(errors)
    answer.errors |= errors


def _steps(job_ids: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for start in range(0, len(job_ids), STEP):
        yield job_ids[start : start + STEP]
