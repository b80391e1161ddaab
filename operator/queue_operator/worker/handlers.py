"""Which function handles which type, and what it takes and gives."""

import inspect
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

from queue_operator.domain.errors import InvalidArgument
from queue_operator.domain.limits import MAX_CAPACITY
from queue_operator.domain.validation import (
    DEFAULT_LIMITS,
    MAX_ATTEMPTS_BOUND,
    check_positive,
    check_text,
)
from queue_operator.worker import injection
from queue_operator.worker.callables import gives_coroutine, hides_coroutine
from queue_operator.worker.context import JobContext
from queue_operator.worker.durations import Duration, length_of
from queue_operator.worker.errors import InvalidHandler
from queue_operator.worker.injection import Needs
from queue_operator.worker.middleware import Middleware
from queue_operator.worker.values import (
    PayloadReader,
    ResultWriter,
    encode_result,
    payload_reader,
    result_writer,
)

__all__ = ["HandlerSpec", "Place", "RegistrationResult", "Registry", "build_spec", "encode_result"]

RunsIn = Literal["loop", "thread", "process"]


class Place(StrEnum):
    """Where a handler runs."""

    LOOP = "loop"
    """With all other coroutines, on one event loop."""
    THREAD = "thread"
    PROCESS = "process"
    """Alone in a child process, which can be ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerSpec:
    """A registered handler. None means that nothing was set for the type."""

    type: str
    function: Callable[..., Any]
    place: Place
    read_payload: PayloadReader | None
    write_result: ResultWriter
    has_default: bool = False
    """Without a payload the handler gets the default of its own."""
    needs: Needs = field(default_factory=dict)
    needs_loop: bool = False
    """For each job a dependency has to be awaited, or what the handler gives."""
    may_await: bool = False
    """The handler is a plain function around a coroutine function."""
    timeout_s: float | None = None
    max_attempts: int | None = None
    concurrency: int | None = None

    @property
    def is_async(self) -> bool:
        return self.place is Place.LOOP

    def arguments(self, context: JobContext) -> tuple[object, ...]:
        """Raises PermanentError when the payload is not what the handler takes."""
        if self.read_payload is None or (self.has_default and not context.payload):
            return (context,)
        return (context, self.read_payload(context.payload))


class RegistrationStatus(StrEnum):
    """`RegistrationResult.status` of the handler registration model."""

    REGISTERED = "REGISTERED"
    REPLACED = "REPLACED"
    INVALID = "INVALID"


@dataclass(frozen=True, slots=True)
class RegistrationResult:
    """`previous` says that the type had a handler. `reason` is set when INVALID."""

    type: str
    status: RegistrationStatus
    previous: bool
    reason: str = ""


class Registry:
    """The handlers and middleware of one worker. `watch` is told of each new registration."""

    def __init__(self) -> None:
        self._specs: dict[str, HandlerSpec] = {}
        self._watchers: list[Callable[[HandlerSpec], object]] = []
        self._changing = threading.Lock()
        self.middleware: list[Middleware] = []

    def add(self, spec: HandlerSpec) -> bool:
        """True when the type had a handler before."""
        with self._changing:
            previous = spec.type in self._specs
            # Another thread may be reading the old ones.
            self._specs = {**self._specs, spec.type: spec}
            watchers = tuple(self._watchers)
        for watcher in watchers:
            watcher(spec)
        return previous

    def get(self, type_: str) -> HandlerSpec | None:
        return self._specs.get(type_)

    def known(self, type_: str) -> HandlerSpec:
        """Raises InvalidArgument, naming the types there are, for one without a handler."""
        if (spec := self.get(type_)) is None:
            known = ", ".join(sorted(self._specs)) or "none"
            raise InvalidArgument(
                "type", f"the worker has no handler for {type_!r}; its types: {known}"
            )
        return spec

    def specs(self) -> tuple[HandlerSpec, ...]:
        return tuple(self._specs.values())

    def watch(self, watcher: Callable[[HandlerSpec], object]) -> None:
        """Called on the thread that registers."""
        with self._changing:
            self._watchers.append(watcher)

    def unwatch(self, watcher: Callable[[HandlerSpec], object]) -> None:
        with self._changing:
            self._watchers.remove(watcher)


def build_spec(
    type_: str,
    function: Callable[..., Any],
    *,
    timeout: Duration | None,
    max_attempts: int | None,
    concurrency: int | None,
    runs_in: RunsIn | None = None,
) -> HandlerSpec:
    """Raises InvalidHandler naming the argument that is wrong."""
    try:
        check_text("type", type_, DEFAULT_LIMITS.id_characters)
    except InvalidArgument as error:
        raise InvalidHandler(error.field, error.reason) from None
    _check_count("max_attempts", max_attempts, MAX_ATTEMPTS_BOUND)
    _check_count("concurrency", concurrency, MAX_CAPACITY)
    if not callable(function):
        raise InvalidHandler("handler", f"must be a function, not {function!r}")
    place = _place(function, runs_in)
    payload, needs = _parameters(function)
    reader = None if payload is None else payload_reader(_resolved(function, payload))
    may_await = place is Place.THREAD and hides_coroutine(function)
    if place is Place.PROCESS:
        _check_importable(function)
        _check_local(needs)
        concurrency = concurrency or cores()
    return HandlerSpec(
        type=str.__str__(type_),
        function=function,
        place=place,
        read_payload=reader,
        has_default=payload is not None and payload.default is not payload.empty,
        write_result=result_writer(_returned(function)),
        needs=needs,
        needs_loop=may_await or injection.needs_loop(needs),
        may_await=may_await,
        timeout_s=_timeout_s(timeout),
        max_attempts=max_attempts,
        concurrency=concurrency,
    )


def _timeout_s(timeout: Duration | None) -> float | None:
    if timeout is None:
        return None
    try:
        seconds = length_of("timeout", timeout)
        check_positive("timeout", seconds)
    except InvalidArgument as error:
        raise InvalidHandler(error.field, error.reason) from None
    return seconds


def _check_count(field: str, value: int | None, bound: int) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= bound:
        raise InvalidHandler(field, f"must be a whole number from 1 to {bound}, not {value!r}")


def _place(function: Callable[..., Any], runs_in: str | None) -> Place:
    is_async = _is_async(function)
    places = (Place.LOOP,) if is_async else (Place.THREAD, Place.PROCESS)
    if runs_in is None:
        return places[0]
    if runs_in not in places:
        kind = "a coroutine function" if is_async else "a plain function"
        fitting = " or ".join(repr(place.value) for place in places)
        raise InvalidHandler("runs_in", f"{kind} runs in {fitting}, not {runs_in!r}")
    return Place(runs_in)


def _is_async(function: Callable[..., Any]) -> bool:
    if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
        raise InvalidHandler("handler", "must return its result, not yield")
    return gives_coroutine(function)


def _check_importable(function: Callable[..., Any]) -> None:
    """A child process finds the handler by its name."""
    if hides_coroutine(function):
        raise InvalidHandler(
            "runs_in",
            "is around a coroutine function, which cannot run in a process: make it a plain "
            "function",
        )
    name = getattr(function, "__qualname__", "")
    if inspect.ismethod(function) or not name or "<" in name:
        raise InvalidHandler(
            "handler", f"runs in a process and must be at the top of a module, unlike {function!r}"
        )


def _check_local(needs: Needs) -> None:
    if injection.has_coroutine(needs):
        raise InvalidHandler("handler", "runs in a process, where no dependency can be a coroutine")


def cores() -> int:
    """Those that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _parameters(function: Callable[..., Any]) -> tuple[inspect.Parameter | None, Needs]:
    """The payload's, None for a handler that takes none, and the dependencies."""
    needs: dict[str, injection.Dependency] = {}
    plain: list[inspect.Parameter] = []
    parameters = list(inspect.signature(function).parameters.values())
    for parameter in parameters[1:]:
        mark = injection.depends_in(_resolved(function, parameter))
        if mark is None:
            plain.append(parameter)
        else:
            needs[parameter.name] = injection.examine(mark)
    return _payload(function, parameters, plain), needs


def _resolved(function: Callable[..., Any], parameter: inspect.Parameter) -> Any:
    return injection.annotation_of(function, parameter.name, parameter.annotation)


def _payload(
    function: Callable[..., Any],
    parameters: list[inspect.Parameter],
    plain: list[inspect.Parameter],
) -> inspect.Parameter | None:
    """The second parameter, None where there is none or it is a dependency."""
    positional = (
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
    )
    payload = next((p for p in parameters[1:2] if p in plain and p.kind in positional), None)
    superfluous = [p for p in plain if p is not payload and _must_be_given(p)]
    if not parameters or parameters[0].kind not in positional or superfluous:
        raise InvalidHandler(
            "handler",
            "must take (ctx) or (ctx, payload), and then nothing but dependencies, not "
            f"{inspect.signature(function)}",
        )
    return payload


def _must_be_given(parameter: inspect.Parameter) -> bool:
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return parameter.default is parameter.empty and parameter.kind not in variadic


def _returned(function: Callable[..., Any]) -> Any:
    annotation = inspect.signature(function).return_annotation
    return injection.annotation_of(function, "return", annotation)
