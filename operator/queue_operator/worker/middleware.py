"""What runs around every handler of a worker."""

import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from queue_operator.worker.callables import gives_coroutine
from queue_operator.worker.context import JobContext
from queue_operator.worker.errors import InvalidHandler

CallNext = Callable[[JobContext], Awaitable[Any]]
"""Goes on to the next middleware, and at last to the handler; gives what it returns."""

Middleware = Callable[[JobContext, CallNext], Awaitable[Any]]


def check(function: Middleware) -> None:
    """Raises InvalidHandler unless it can stand around a handler."""
    if not gives_coroutine(function):
        raise InvalidHandler("middleware", "must be `async def`: it awaits call_next(ctx)")
    try:
        inspect.signature(function).bind(None, None)
    except TypeError:
        raise InvalidHandler(
            "middleware", f"must take (ctx, call_next), not {inspect.signature(function)}"
        ) from None


def around(handler: CallNext, chain: Sequence[Middleware]) -> CallNext:
    """The handler within the chain, whose first is the outermost."""
    call = handler
    for middleware in reversed(chain):
        call = _step(middleware, call)
    return call


def _step(middleware: Middleware, call_next: CallNext) -> CallNext:
    return lambda ctx: middleware(ctx, call_next)
