"""Waiting for jobs, and watching them: by streams of events, or by looks where there are none."""

from collections.abc import Callable
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
    """Until the job has ended. Who is told each look is told of progress too, which streams are
    not: it looks every `poll_s`. Others hear of the end, and look then.

    Raises TimeoutError after `timeout_s` seconds, Unavailable when the server could not be
    asked for `outage_s` seconds.
    """
    clock = how.clock
    started = answered = clock()
    until = float("inf") if timeout_s is None else started + timeout_s
    pause_s = min(_FIRST_LOOK_S, how.poll_s)
    state = "not known"
    look = operations.get(job_id, namespace, include_result=True)
    call = operations.job_events(job_id, False, namespace)
    ear = None if told is not None else _ear(call, how, until=until, or_else=True)
    heard = False
    while True:
        try:
            status = yield from exchange(look, how.policy)
        except Unavailable as error:
            if clock() - answered >= how.outage_s:
                raise error from None
        else:
            if told is not None:
                told(status)
            if status.is_finished:
                return status
            answered, state = clock(), status.state
        if until - clock() <= 0:
            raise TimeoutError(f"job {job_id!r} has not ended within {timeout_s:g} s: {state}")
        if ear is not None and not heard and (heard := (yield from _end(ear))):
            answered = clock()
            continue
        # There is nothing to listen to, or what had ended was retried meanwhile.
        if not heard:
            ear = None
        heard = False
        yield Pause(min(pause_s, max(until - clock(), 0.0)))
        pause_s = min(how.poll_s, pause_s * _LOOK_GROWTH)


def _end(ear: Ear) -> Flow[bool]:
    """Until the job has ended, or the time is over. False where the server tells no events."""
    try:
        while (event := (yield from ear.next())) is not None and not event.is_finished:
            pass
    except NoStream:
        return False
    except OutOfTime:
        return True
    yield from ear.leave()
    return True


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
