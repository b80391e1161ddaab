"""Waiting for jobs, and watching them: by streams of events, or by looks where there are none."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, TypeVar

from queue_operator.backends.lookups import SearchOrder
from queue_operator.client import operations
from queue_operator.client.events import JobEvent
from queue_operator.client.flows import exchange
from queue_operator.client.listening import (
    Ear,
    Flow,
    NoStream,
    OutOfTime,
    Pause,
    Told,
)
from queue_operator.client.models import JobStatus
from queue_operator.client.protocol import Call, Operation
from queue_operator.client.requests import JobSearch
from queue_operator.client.retrying import RetryPolicy
from queue_operator.domain.errors import Unavailable
from queue_operator.domain.views import Phase

T = TypeVar("T")

_FIRST_LOOK_S: Final = 0.1
_LOOK_GROWTH: Final = 1.5
_OVERLAP: Final = timedelta(seconds=5)
"""How far looks go back: what is written last may be stamped before what is read already."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How a client waits: `poll_s` between looks, where it looks, and `outage_s` until a server
    that cannot be asked is given up.
    """

    policy: RetryPolicy
    clock: Callable[[], float]
    poll_s: float
    outage_s: float


def wait(
    job_id: str,
    namespace: str | None,
    how: Patience,
    *,
    timeout_s: float | None,
    told: Callable[[JobStatus], None] | None,
) -> Flow[JobStatus]:
    """Until the job has ended. It listens, and looks when it hears of something; who is `told` each
    look is told of every change of the state so. Of progress no stream tells: for that it looks
    while the job runs, and listens again when it does not.

    Raises TimeoutError after `timeout_s` seconds, Unavailable when the server could not be
    asked for `outage_s` seconds.
    """
    return (yield from _Wait(job_id, namespace, how, timeout_s, told).run())


class _Wait:
    """`wait`, at work."""

    def __init__(
        self,
        job_id: str,
        namespace: str | None,
        how: Patience,
        timeout_s: float | None,
        told: Callable[[JobStatus], None] | None,
    ) -> None:
        self._how, self._told = how, told
        self._answered = how.clock()
        self._until = float("inf") if timeout_s is None else self._answered + timeout_s
        self._pause_s = min(_FIRST_LOOK_S, how.poll_s)
        self._status: JobStatus | None = None
        self._late = f"job {job_id!r} has not ended within {timeout_s or 0:g} s"
        self._get = operations.get(job_id, namespace, include_result=True)
        self._call = operations.job_events(job_id, False, namespace)
        self._ear: Ear | None = None
        self._listens = True
        self._heard_of_end = False

    def run(self) -> Flow[JobStatus]:
        """The job as it ended."""
        while True:
            status = yield from self._look()
            if status is not None and status.is_finished:
                yield from self._leave()
                return status
            if self._left_s() <= 0:
                state = "not known" if self._status is None else self._status.state
                raise TimeoutError(f"{self._late}: {state}")
            yield from self._until_next_look()

    def _look(self) -> Flow[JobStatus | None]:
        """None where the server cannot be asked, and not for too long."""
        try:
            status = yield from exchange(self._get, self._how.policy)
        except Unavailable as error:
            if self._how.clock() - self._answered >= self._how.outage_s:
                raise error from None
            return None
        if self._told is not None:
            self._told(status)
        self._answered, self._status = self._how.clock(), status
        return status

    def _until_next_look(self) -> Flow[None]:
        status = self._status
        if self._told is not None and status is not None and status.state is Phase.RUNNING:
            yield from self._leave()
        elif self._listens and not self._heard_of_end:
            yield from self._hear()
            if self._listens:
                return
        # There is nothing to listen to, or what had ended was retried meanwhile.
        self._heard_of_end = False
        yield Pause(min(self._pause_s, max(self._left_s(), 0.0)))
        self._pause_s = min(self._how.poll_s, self._pause_s * _LOOK_GROWTH)

    def _hear(self) -> Flow[None]:
        """Until there is a reason to look, or the time is over."""
        if self._ear is None:
            self._ear = _ear(self._call, self._how, until=self._until, or_else=True)
        try:
            while (event := (yield from self._ear.next())) is not None and not event.is_finished:
                if self._told is not None and self._is_new(event):
                    break
            else:
                self._heard_of_end = True
                yield from self._ear.leave()
        except NoStream:
            self._listens = False
            return
        except OutOfTime:
            return
        self._answered = self._how.clock()

    def _is_new(self, event: JobEvent) -> bool:
        seen = self._status
        return seen is None or (seen.state, seen.attempt) != (event.status, event.attempt)

    def _leave(self) -> Flow[None]:
        """What happens meanwhile is seen by looking: the next stream begins with how it is then."""
        ear, self._ear = self._ear, None
        if ear is not None:
            yield from ear.leave()

    def _left_s(self) -> float:
        return self._until - self._how.clock()


@dataclass(frozen=True, slots=True)
class Watched:
    """What is watched: one job, on and on if `follow`, or all that meet the types, states and tags
    of a search; from `after` on, the position of an event.
    """

    job_id: str | None
    search: JobSearch
    follow: bool
    after: str | None
    namespace: str | None

    @classmethod
    def of(
        cls,
        job_id: str | None,
        types: Iterable[str],
        states: Iterable[Phase],
        tags: Mapping[str, str] | None,
        follow: bool,
        after: str | None,
        namespace: str | None,
    ) -> "Watched":
        """As the clients are asked for it."""
        search = JobSearch(types=tuple(types), states=tuple(states), tags=dict(tags or {}))
        return cls(job_id, search, follow, after, namespace)


def watch(
    wanted: Watched, how: Patience, on_gap: Callable[[str], None] | None = None
) -> Flow[None]:
    """Tells each event. Raises Unavailable when the server could not be asked for `outage_s`."""
    job_id = wanted.job_id
    if job_id is None:
        call = operations.events(wanted.search, wanted.namespace)
    else:
        call = operations.job_events(job_id, wanted.follow, wanted.namespace)
    ear = _ear(call, how, after=wanted.after, on_gap=on_gap)
    try:
        while (event := (yield from ear.next())) is not None:
            yield Told(event)
    except NoStream:
        if job_id is None:
            yield from _found(wanted, how)
        else:
            yield from _seen(job_id, wanted, how)


def _ear(
    call: Call,
    how: Patience,
    *,
    until: float = float("inf"),
    after: str | None = None,
    on_gap: Callable[[str], None] | None = None,
    or_else: bool = False,
) -> Ear:
    return Ear(
        call,
        how.policy,
        how.clock,
        outage_s=how.outage_s,
        until=until,
        after=after,
        on_gap=on_gap,
        or_else=or_else,
    )


def _seen(job_id: str, wanted: Watched, how: Patience) -> Flow[None]:
    """Looks at one job, and tells what is new; what comes and goes between two looks is missed."""
    look = operations.get(job_id, wanted.namespace, include_result=False)
    last: tuple[Any, ...] = ()
    while True:
        status = yield from _asked(look, how)
        if (shown := _shown(status)) != last:
            last = shown
            yield Told(_event(status))
        if status.is_finished and not wanted.follow:
            return
        yield Pause(how.poll_s)


def _found(wanted: Watched, how: Patience) -> Flow[None]:
    """Looks for jobs that were written since the last look. The first one tells nothing."""
    search = wanted.search.model_copy(
        update={
            "limit": operations.PAGE_JOBS,
            "order": SearchOrder.UPDATED_DESC,
            "include_total": False,
        }
    )
    known: dict[str, tuple[Any, ...]] | None = None
    while True:
        page = yield from _asked(operations.search(search, wanted.namespace), how)
        now = {job.job_id: _shown(job) for job in page.jobs}
        for job in reversed(page.jobs):
            if known is not None and known.get(job.job_id) != now[job.job_id]:
                yield Told(_event(job))
        known = now
        newest = max((job.updated_at for job in page.jobs if job.updated_at), default=None)
        if newest is not None:
            search = search.model_copy(update={"updated_after": newest - _OVERLAP})
        yield Pause(how.poll_s)


def _asked(operation: Operation[T], how: Patience) -> Flow[T]:
    """As `exchange`, until the server could not be asked for `outage_s`."""
    began = how.clock()
    while True:
        try:
            return (yield from exchange(operation, how.policy))
        except Unavailable:
            if how.clock() - began >= how.outage_s:
                raise
        yield Pause(how.poll_s)


def _shown(status: JobStatus) -> tuple[Any, ...]:
    return (status.state, status.attempt, status.completed_at)


def _event(status: JobStatus) -> JobEvent:
    return JobEvent(
        job_id=status.job_id,
        namespace=status.namespace,
        type=status.type,
        status=status.state,
        event=status.reason,
        attempt=status.attempt,
        at=status.updated_at,
    )
