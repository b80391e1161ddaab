"""What a call of a function gives, judged from its inside too."""

import functools
import inspect
from collections.abc import Iterator
from typing import Any


def gives_coroutine(function: Any) -> bool:
    """A coroutine function, or an object whose `__call__` is one."""
    inner = _without_partial(function)
    if inspect.iscoroutinefunction(inner):
        return True
    return not isinstance(inner, type) and inspect.iscoroutinefunction(
        getattr(type(inner), "__call__", None)  # noqa: B004  (the method itself is wanted)
    )


def hides_coroutine(function: Any) -> bool:
    """A plain function that a decorator has put around a coroutine function or an async
    generator function, and said so as `functools.wraps` does. What a call gives only the call
    can tell.
    """
    if gives_coroutine(function) or inspect.isasyncgenfunction(function):
        return False
    return any(
        gives_coroutine(inner) or inspect.isasyncgenfunction(inner) for inner in _wrapped(function)
    )


def _wrapped(function: Any) -> Iterator[Any]:
    """What is within it, layer by layer."""
    seen = {id(function)}
    inner = getattr(_without_partial(function), "__wrapped__", None)
    while inner is not None and id(inner) not in seen:
        seen.add(id(inner))
        yield inner
        inner = getattr(_without_partial(inner), "__wrapped__", None)


def _without_partial(function: Any) -> Any:
    while isinstance(function, functools.partial):
        function = function.func
    return function


def place_of(function: Any) -> str:
    """Its name, and where it stands: "shop.send (/app/shop.py:12)"."""
    module, name = getattr(function, "__module__", ""), getattr(function, "__qualname__", "")
    code = getattr(inspect.unwrap(_without_partial(function)), "__code__", None)
    where = f" ({code.co_filename}:{code.co_firstlineno})" if code is not None else ""
    return f"{module}.{name}{where}" if name else f"{function!r}{where}"
