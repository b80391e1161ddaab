"""What a function is, seen through what stands around it."""

import asyncio
import functools
from collections.abc import AsyncIterator, Callable
from typing import Annotated, Any

import pytest

from queue_operator.worker import Depends, InvalidHandler, JobContext, PermanentError, Worker
from queue_operator.worker.testing import run_handler


def passing_on(function: Callable[..., Any]) -> Callable[..., Any]:
    """The usual decorator of people who do not think of coroutines."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


def running_it(function: Callable[..., Any]) -> Callable[..., Any]:
    """One that does, in its own way."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return asyncio.run(function(*args, **kwargs))

    return wrapper


def silent(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda ctx, payload: function(ctx, payload)


async def add(ctx: JobContext, payload: list[int]) -> int:
    await asyncio.sleep(0)
    return sum(payload)


class Adder:
    async def __call__(self, ctx: JobContext, payload: list[int]) -> int:
        return await add(ctx, payload)


@pytest.mark.parametrize(
    "handler",
    [
        passing_on(add),
        passing_on(passing_on(add)),
        running_it(add),
        functools.partial(passing_on(add)),
        passing_on(Adder()),
        functools.partial(Adder()),
    ],
)
def test_a_coroutine_function_behind_a_decorator_runs(
    worker_with: Any, server: Any, run: Any, say: Any, handler: Any
) -> None:
    worker = worker_with(add=handler)
    assert run_handler(worker, "add", [1, 2]) == 3
    run(worker)
    connection = server.accept()
    connection.send(say.assigned(say.assignment("a", "t", "add", payload=b"[1,2]")))
    assert connection.settle()[0].result == b"3"


def test_what_nobody_can_see_is_told_when_it_runs() -> None:
    worker = Worker()
    worker.register("add", silent(add))
    with pytest.raises(PermanentError, match=r"functools\.wraps") as caught:
        run_handler(worker, "add", [1])
    assert caught.value.code == "INVALID_RESULT"


@passing_on
async def wrapped(ctx: JobContext) -> None: ...


def test_one_behind_a_decorator_has_no_process() -> None:
    with pytest.raises(InvalidHandler, match="around a coroutine function"):
        Worker().handler("t", runs_in="process")(wrapped)


async def connect() -> str:
    return "connected"


async def connecting() -> AsyncIterator[str]:
    yield "connected"


class Connector:
    async def __call__(self) -> str:
        return "connected"


@pytest.mark.parametrize(
    "factory",
    [passing_on(connect), running_it(connect), passing_on(connecting), Connector()],
)
def test_dependencies_are_looked_through_too(factory: Any) -> None:
    def plain(ctx: JobContext, db: Annotated[str, Depends(factory)]) -> str:
        return db

    async def coroutine(ctx: JobContext, db: Annotated[str, Depends(factory)]) -> str:
        return db

    for handler in (plain, coroutine):
        handler.__annotations__["db"] = Annotated[str, Depends(factory)]
    worker = Worker()
    worker.register("plain", plain)
    worker.register("coroutine", coroutine)
    assert run_handler(worker, "plain") == "connected"
    assert run_handler(worker, "coroutine") == "connected"


def test_a_factory_that_cannot_be_told_from_others_is_refused() -> None:
    class Unhashable:
        __hash__ = None  # type: ignore[assignment]

        def __call__(self) -> int:
            return 1

    with pytest.raises(InvalidHandler, match="can be hashed"):
        Depends(Unhashable())
