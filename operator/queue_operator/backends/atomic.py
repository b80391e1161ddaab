"""Calls on a shelf, each of them alone with it."""

from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

_P = ParamSpec("_P")
_T = TypeVar("_T")


class Alone(Protocol):
    """What such methods belong to."""

    async def _alone(self, work: Callable[[], _T], *, reads: bool = False) -> _T:
        """Runs `work` while nobody else uses the shelf; what it raises leaves no trace. If it
        only `reads`, others may, as long as it does not see what they do.

        Raises Unavailable when the shelf cannot be reached.
        """
        ...

    async def _alone_or_undone(self, work: Callable[[], _T], undo: Callable[[_T], None]) -> _T:
        """The same for what gives something to its caller: where that one is cancelled and
        `work` was done all the same, `undo` is done too, likewise alone.
        """
        ...

    def _at_once(self, method: Callable[[], _T]) -> Callable[[], _T]:
        """The method at the time at which it is begun."""
        ...


_E = TypeVar("_E", bound=Alone)


def atomic(
    method: Callable[Concatenate[_E, _P], _T],
) -> Callable[Concatenate[_E, _P], Coroutine[Any, Any, _T]]:
    """A call that others may come before, but that nobody comes into."""

    async def call(self: _E, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        return await self._alone(self._at_once(partial(method, self, *args, **kwargs)))

    return call


def reading(
    method: Callable[Concatenate[_E, _P], _T],
) -> Callable[Concatenate[_E, _P], Coroutine[Any, Any, _T]]:
    """The same for a call that changes nothing, and need not keep others waiting."""

    async def call(self: _E, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        return await self._alone(self._at_once(partial(method, self, *args, **kwargs)), reads=True)

    return call


def undone_by(
    undo: Callable[[_E, Any], None],
) -> Callable[
    [Callable[Concatenate[_E, _P], _T]], Callable[Concatenate[_E, _P], Coroutine[Any, Any, _T]]
]:
    """The same for a call that gives something to its caller, who may be gone: `undo` takes it
    back then.
    """

    def decorated(
        method: Callable[Concatenate[_E, _P], _T],
    ) -> Callable[Concatenate[_E, _P], Coroutine[Any, Any, _T]]:
        async def call(self: _E, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
            def take_back(given: _T) -> None:
                self._at_once(partial(undo, self, given))()

            work = self._at_once(partial(method, self, *args, **kwargs))
            return await self._alone_or_undone(work, take_back)

        return call

    return decorated
