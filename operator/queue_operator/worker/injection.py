"""Dependencies: what a handler asks for by annotation, made for it and closed after it."""

import asyncio
import inspect
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    ExitStack,
    asynccontextmanager,
    contextmanager,
)
from dataclasses import dataclass
from enum import Enum, auto
from types import SimpleNamespace
from typing import Any, Final, Literal

from queue_operator.domain.texts import kind_of
from queue_operator.worker.callables import gives_coroutine, hides_coroutine
from queue_operator.worker.context import JobContext
from queue_operator.worker.errors import InvalidHandler

Factory = Callable[..., Any]
Lifetime = Literal["job", "worker"]
Resource = AbstractAsyncContextManager[Any] | AbstractContextManager[Any]

CONTEXT_NAME: Final = "ctx"


@dataclass(frozen=True, slots=True)
class Depends:
    """Marks a parameter as something to be made: `db: Annotated[Database, Depends(connect)]`.

    `factory` is a function or a coroutine function that returns the value, or a generator or
    async generator that yields it once and closes it after the `yield`. It may take
    dependencies of its own, and the job's context as `ctx`.

    `scope` is how long the value lives: "job" (the default) makes one for each run of a
    handler, "worker" one for the process, before its first job. What was made last is closed
    first. An error in making or closing fails the job, or with scope "worker" the start.
    """

    factory: Factory
    scope: Lifetime = "job"

    def __post_init__(self) -> None:
        if not callable(self.factory):
            raise InvalidHandler("Depends", f"needs a function, not {self.factory!r}")
        try:
            hash(self.factory)
        except Exception:
            raise InvalidHandler(
                "Depends",
                f"needs a function, or an object that can be hashed, not {kind_of(self.factory)}",
            ) from None
        if self.scope not in ("job", "worker"):
            raise InvalidHandler("Depends", f'scope is "job" or "worker", not {self.scope!r}')


class Kind(Enum):
    """How a factory gives its value."""

    PLAIN = auto()
    COROUTINE = auto()
    GENERATOR = auto()
    ASYNC_GENERATOR = auto()
    WRAPPED = auto()
    """A plain function around a coroutine function: what it gives may have to be awaited."""


_ASYNC: Final = (Kind.COROUTINE, Kind.ASYNC_GENERATOR, Kind.WRAPPED)


@dataclass(frozen=True, slots=True)
class Dependency:
    """A factory that was looked at: what it takes, and how it gives its value."""

    factory: Factory
    scope: Lifetime
    kind: Kind
    takes_context: bool
    needs: Mapping[str, "Dependency"]

    def tree(self) -> Iterator["Dependency"]:
        """All that it needs and itself, those first that others need."""
        for need in self.needs.values():
            yield from need.tree()
        yield self


Needs = Mapping[str, Dependency]
NOTHING: Final[Needs] = {}


def all_of(needs: Needs) -> Iterator[Dependency]:
    for need in needs.values():
        yield from need.tree()


def needs_loop(needs: Needs) -> bool:
    """Whether something has to be awaited for each job."""
    return any(need.kind in _ASYNC and need.scope == "job" for need in all_of(needs))


def has_coroutine(needs: Needs) -> bool:
    return any(need.kind in _ASYNC for need in all_of(needs))


def depends_in(annotation: Any) -> Depends | None:
    """The mark in an `Annotated[…]`."""
    if typing.get_origin(annotation) is not typing.Annotated:
        return None
    marks = (mark for mark in annotation.__metadata__ if isinstance(mark, Depends))
    return next(marks, None)


def annotation_of(function: Callable[..., Any], name: str, annotation: Any) -> Any:
    """Raises InvalidHandler for text that cannot be resolved."""
    if not isinstance(annotation, str):
        return annotation
    # Only this annotation is evaluated: the one of `ctx` may name a type that its module
    # imports for the type checker alone.
    lone = SimpleNamespace(__annotations__={name: annotation})
    names = getattr(_written(function), "__globals__", {})
    try:
        return typing.get_type_hints(lone, globalns=names, include_extras=True)[name]
    except (NameError, TypeError, SyntaxError) as error:
        raise InvalidHandler(
            name, f"its annotation {annotation!r} cannot be resolved: {error}"
        ) from None


def _written(function: Callable[..., Any]) -> Any:
    """The `def` behind a decorated function, a partial or an object that can be called."""
    inner = inspect.unwrap(function)
    inner = getattr(inner, "func", inner)
    return inner if inspect.isroutine(inner) else type(inner).__call__


def examine(depends: Depends, outer: tuple[Factory, ...] = ()) -> Dependency:
    """Raises InvalidHandler for a factory that cannot be called with what there is."""
    factory = depends.factory
    name = _name(factory)
    if factory in outer:
        raise InvalidHandler("Depends", f"{name} needs itself")
    needs: dict[str, Dependency] = {}
    takes_context = False
    for parameter in inspect.signature(factory).parameters.values():
        annotation = annotation_of(factory, parameter.name, parameter.annotation)
        mark = depends_in(annotation)
        if mark is not None:
            needs[parameter.name] = examine(mark, (*outer, factory))
        elif parameter.name == CONTEXT_NAME:
            takes_context = True
        elif parameter.default is parameter.empty and parameter.kind not in (
            parameter.VAR_POSITIONAL,
            parameter.VAR_KEYWORD,
        ):
            raise InvalidHandler(
                "Depends", f"{name} takes {parameter.name!r}, which is neither a dependency nor ctx"
            )
    if depends.scope == "worker" and (
        takes_context or any(n.scope == "job" for n in needs.values())
    ):
        raise InvalidHandler(
            "Depends", f"{name} lives as long as the worker and cannot need what a job has"
        )
    return Dependency(factory, depends.scope, _kind(factory), takes_context, needs)


def _kind(factory: Factory) -> Kind:
    if inspect.isasyncgenfunction(factory):
        return Kind.ASYNC_GENERATOR
    if inspect.isgeneratorfunction(factory):
        return Kind.GENERATOR
    if gives_coroutine(factory):
        return Kind.COROUTINE
    return Kind.WRAPPED if hides_coroutine(factory) else Kind.PLAIN


def _name(factory: Factory) -> str:
    return getattr(factory, "__qualname__", repr(factory))


def check_lifespan(function: Any) -> None:
    """Raises InvalidHandler for what cannot be called with the worker, or never yields."""
    if not callable(function):
        reason = f"must be a function of the worker, not {kind_of(function)}"
    elif gives_coroutine(function):
        reason = f"{_name(function)} must yield once: what comes before the yield begins"
    else:
        try:
            inspect.signature(function).bind(None)
            return
        except TypeError:
            reason = f"{_name(function)} must take the worker and nothing else"
    raise InvalidHandler("lifespan", reason)


def as_resource(lifespan: Any) -> Resource:
    """What a lifespan function gave, as something to enter.

    Raises InvalidHandler for what is neither a generator nor a context manager.
    """
    if inspect.isasyncgen(lifespan):
        return asynccontextmanager(lambda: lifespan)()
    if inspect.isgenerator(lifespan):
        return contextmanager(lambda: lifespan)()
    if isinstance(lifespan, AbstractAsyncContextManager | AbstractContextManager):
        return lifespan
    raise InvalidHandler(
        "lifespan",
        f"must yield or give a context manager, not {kind_of(lifespan)}",
    )


class Provider:
    """Makes dependencies. Those of scope "worker" live in it until `close`."""

    def __init__(self, overrides: Mapping[Factory, Factory] | None = None) -> None:
        self._overrides = {} if overrides is None else overrides
        self._made: dict[Factory, object] = {}
        self._stack = AsyncExitStack()
        self._local = ExitStack()
        self._preparing = asyncio.Lock()

    def ready(self, needs: Needs) -> bool:
        """Whether all that lives as long as the worker is there."""
        return all(n.scope == "job" or n.factory in self._made for n in all_of(needs))

    async def enter(self, resource: Resource) -> Any:
        """Opens something that is closed after all that is made from now on."""
        if isinstance(resource, AbstractAsyncContextManager):
            return await self._stack.enter_async_context(resource)
        return self._stack.enter_context(resource)

    async def prepare(self, needs: Iterable[Dependency]) -> None:
        """Makes what lives as long as the worker, each once."""
        async with self._preparing:
            for need in needs:
                if need.scope == "worker":
                    await self._await_one(need, self._made, None, self._stack)

    async def provide(
        self, needs: Needs, context: JobContext, stack: AsyncExitStack
    ) -> dict[str, Any]:
        """The arguments by name. `stack` closes what was made for this job."""
        await self.prepare(all_of(needs))
        made = dict(self._made)
        return {n: await self._await_one(d, made, context, stack) for n, d in needs.items()}

    def provide_here(self, needs: Needs, context: JobContext, stack: ExitStack) -> dict[str, Any]:
        """As `provide`, in this thread, of which nothing has to be awaited. What lives as long
        as the worker and is not there yet is made here too: so it is in a child process, which
        runs one job at a time.
        """
        for need in all_of(needs):
            if need.scope == "worker":
                self._make_one(need, self._made, None, self._local)
        made = dict(self._made)
        return {n: self._make_one(d, made, context, stack) for n, d in needs.items()}

    async def close(self) -> None:
        self.close_here()
        await self._stack.aclose()
        self._made.clear()

    def close_here(self) -> None:
        """Closes what `provide_here` made to last."""
        self._local.close()

    async def _await_one(
        self,
        need: Dependency,
        made: dict[Factory, object],
        context: JobContext | None,
        stack: AsyncExitStack,
    ) -> Any:
        if need.factory in made:
            return made[need.factory]
        actual = self._actual(need)
        arguments = _own_arguments(actual, context)
        for name, inner in actual.needs.items():
            arguments[name] = await self._await_one(inner, made, context, stack)
        match actual.kind:
            case Kind.ASYNC_GENERATOR:
                opened = asynccontextmanager(actual.factory)(**arguments)
                value = await stack.enter_async_context(opened)
            case Kind.COROUTINE:
                value = await actual.factory(**arguments)
            case Kind.GENERATOR:
                value = stack.enter_context(contextmanager(actual.factory)(**arguments))
            case Kind.WRAPPED:
                # It may have a loop of its own, which cannot run within this one.
                made_here = await asyncio.to_thread(actual.factory, **arguments)
                value = await _awaited(made_here, stack)
            case Kind.PLAIN:
                value = actual.factory(**arguments)
        made[need.factory] = value
        return value

    def _make_one(
        self,
        need: Dependency,
        made: dict[Factory, object],
        context: JobContext | None,
        stack: ExitStack,
    ) -> Any:
        if need.factory in made:
            return made[need.factory]
        actual = self._actual(need)
        if actual.kind in _ASYNC:
            raise TypeError(f"{_name(actual.factory)} has to be awaited, which cannot be done here")
        arguments = _own_arguments(actual, context)
        for name, inner in actual.needs.items():
            arguments[name] = self._make_one(inner, made, context, stack)
        if actual.kind is Kind.GENERATOR:
            value = stack.enter_context(contextmanager(actual.factory)(**arguments))
        else:
            value = actual.factory(**arguments)
        made[need.factory] = value
        return value

    def _actual(self, need: Dependency) -> Dependency:
        other = self._overrides.get(need.factory)
        return need if other is None else examine(Depends(other, need.scope))


async def _awaited(value: Any, stack: AsyncExitStack) -> Any:
    if inspect.isawaitable(value):
        return await value
    if inspect.isasyncgen(value):
        return await stack.enter_async_context(asynccontextmanager(lambda: value)())
    return value


def _own_arguments(need: Dependency, context: JobContext | None) -> dict[str, Any]:
    return {CONTEXT_NAME: context} if need.takes_context else {}
