"""The one seam at which the queue is measured: a Backend that counts and delegates."""

import functools
import inspect
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeVar, cast

from queue_operator.metrics.recorder import Recorder

B = TypeVar("B")

Arguments = Mapping[str, Any]

_SETTLE: Final = "settle"
"""The one call whose answer tells of outcomes that were refused; others raise."""


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
        if name == _SETTLE:
            self._recorder.settled(result)
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
    # What an instance has beside its class, such as the outbox of webhooks, is handed out too.
    own = [name for name in getattr(backend, "__dict__", ()) if not name.startswith("_")]
    members |= {name: _handed_out(name) for name in own if name not in members}
    wrapper = type(f"Instrumented{kind.__name__}", (_Instrumented,), members)
    return cast(B, wrapper(backend, recorder, monotonic))


def _member(kind: type, name: str) -> Any:
    attribute = inspect.getattr_static(kind, name)
    if not inspect.iscoroutinefunction(attribute):
        # Streams, properties and plain methods are handed out as they are.
        return _handed_out(name)
    signature = _without_self(attribute)

    @functools.wraps(attribute)
    async def measured(self: _Instrumented, *args: Any, **kwargs: Any) -> Any:
        return await self._measured(name, signature, args, kwargs)

    return measured


def _handed_out(name: str) -> property:
    return property(lambda self: getattr(self._inner, name))


def _without_self(method: Callable[..., Any]) -> inspect.Signature:
    signature = inspect.signature(method)
    return signature.replace(parameters=list(signature.parameters.values())[1:])
