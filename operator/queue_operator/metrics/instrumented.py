"""The one seam at which the queue is measured: a Backend that counts and delegates."""

import functools
import inspect
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, TypeVar, cast

from queue_operator.domain.job import Submitted
from queue_operator.domain.outcome import ErrorCategory
from queue_operator.domain.states import Event, JobState
from queue_operator.metrics.recorder import Recorder

B = TypeVar("B")
T = TypeVar("T")

Arguments = Mapping[str, Any]
After = Callable[[Recorder, Arguments, Any], None]
"""Counts a call that succeeded, from its arguments by name and its result."""


def _taken_in(recorder: Recorder, given: Arguments, taken: Any) -> None:
    new = frozenset(taken.new)
    recorder.enqueued(job for job in given["jobs"] if job.id in new)


def _submitted(recorder: Recorder, given: Arguments, answers: Any) -> None:
    recorder.enqueued(_new(given["jobs"], answers))


def _spawned(recorder: Recorder, given: Arguments, answers: Any) -> None:
    requests = _new(given["requests"], answers)
    recorder.enqueued(replace(one.job, namespace=one.namespace) for one in requests)


def _new(given: Iterable[T], answers: Iterable[Submitted]) -> Iterator[T]:
    """Those that were stored, and not before."""
    for one, answer in zip(given, answers, strict=True):
        if answer.error is None and not answer.duplicate:
            yield one


def _reported(
    event: Event, state: JobState | None = None, category: ErrorCategory | None = None
) -> After:
    def count(recorder: Recorder, given: Arguments, _: Any) -> None:
        recorder.ended((given["namespace"], given["job_id"]), event, category, state)

    return count


_AFTER: Final[Mapping[str, After]] = {
    "enqueue_job": lambda recorder, given, _: recorder.enqueued((given["job"],)),
    "enqueue_jobs": lambda recorder, given, _: recorder.enqueued(given["jobs"]),
    "submit": _submitted,
    "take_in": _taken_in,
    "spawn": _spawned,
    "claim": lambda recorder, _, assignments: recorder.assigned(assignments),
    "dequeue_jobs": lambda recorder, _, jobs: recorder.claimed(jobs),
    "settle": lambda recorder, given, answers: recorder.settled(
        zip(given["outcomes"], answers, strict=True)
    ),
    "expire_leases": lambda recorder, _, lost: recorder.expired(lost),
    "complete_job": _reported(Event.COMPLETE, JobState.COMPLETED),
    # The answer does not say whether an attempt is left.
    "fail_job": _reported(Event.FAIL, category=ErrorCategory.TEMPORARY),
    "stop_job": _reported(Event.STOP, JobState.STOPPED),
    "stop_job_with_retry": _reported(Event.STOP_WITH_RETRY, JobState.STOPPED),
    "mark_job_unknown_stopped": _reported(Event.MARK_UNKNOWN_STOPPED, JobState.UNKNOWN_STOPPED),
}


class _Instrumented:
    """Base of the classes that `instrument` makes."""

    def __init__(self, inner: object, recorder: Recorder, monotonic: Callable[[], float]) -> None:
        self._inner = inner
        self._recorder = recorder
        self._monotonic = monotonic

    async def _measured(
        self, name: str, signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        call: Callable[..., Awaitable[Any]] = getattr(self._inner, name)
        started = self._monotonic()
        failure: Exception | None = None
        try:
            result = await call(*args, **kwargs)
        except Exception as error:
            failure = error
            namespace = _bound(signature, args, kwargs).get("namespace")
            self._recorder.refused(namespace or "", error)
            raise
        finally:
            self._recorder.called(name, self._monotonic() - started, failure)
        after = _AFTER.get(name)
        if after is not None:
            after(self._recorder, _bound(signature, args, kwargs), result)
        return result


def _bound(
    signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Arguments:
    given = signature.bind(*args, **kwargs)
    given.apply_defaults()
    return given.arguments


def instrument(
    backend: B, recorder: Recorder, monotonic: Callable[[], float] = time.monotonic
) -> B:
    """`backend` with every public method measured.

    The wrapper has exactly the methods of what it wraps, so asking it for a capability
    (`isinstance(backend, Signals)`) gives the same answer.
    """
    kind = type(backend)
    names = [name for name in dir(kind) if not name.startswith("_")]
    members = {name: _member(kind, name) for name in names}
    wrapper = type(f"Instrumented{kind.__name__}", (_Instrumented,), members)
    return cast(B, wrapper(backend, recorder, monotonic))


def _member(kind: type, name: str) -> Any:
    attribute = inspect.getattr_static(kind, name)
    if not inspect.iscoroutinefunction(attribute):
        # Streams, properties and plain methods are handed out as they are.
        return property(lambda self: getattr(self._inner, name))
    signature = _without_self(attribute)

    @functools.wraps(attribute)
    async def measured(self: _Instrumented, *args: Any, **kwargs: Any) -> Any:
        return await self._measured(name, signature, args, kwargs)

    return measured


def _without_self(method: Callable[..., Any]) -> inspect.Signature:
    signature = inspect.signature(method)
    return signature.replace(parameters=list(signature.parameters.values())[1:])
