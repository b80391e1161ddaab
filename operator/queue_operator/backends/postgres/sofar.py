"""How far a process has looked through rows that are deleted once they were found, so that it does
not pass by all that is dead while an old snapshot keeps it.
"""

from collections.abc import Callable
from typing import Final, Generic, Protocol, Self, TypeVar

EVER: Final = "-infinity"
_APART: Final = 10


class _Ordered(Protocol):
    def __gt__(self, other: Self, /) -> bool: ...


_T = TypeVar("_T", bound=_Ordered)


class SoFar(Generic[_T]):
    """A place in an order, before which nothing is any more: what comes late comes within `late_s`.
    For the case that it does not, all is looked at every `anew_s`, and in another history of the
    database. `start` is where a whole look begins.
    """

    def __init__(
        self,
        start: _T | str,
        *,
        late_s: float,
        anew_s: float,
        monotonic: Callable[[], float],
    ) -> None:
        self._start = start
        self._late_s = late_s
        self._anew_s = anew_s
        self._monotonic = monotonic
        self._history = ""
        self.lose()

    def lose(self) -> None:
        """The next look is at all."""
        self._anew_at_s = float("-inf")
        self._newest: _T | None = None
        self._place: _T | None = None
        self._waiting: list[tuple[float, _T]] = []

    def after(self, history: str) -> _T | str:
        """Where a look begins."""
        if history != self._history:
            self._history = history
            self.lose()
        now_s = self._monotonic()
        self._pass(now_s)
        if now_s >= self._anew_at_s:
            self._anew_at_s = now_s + self._anew_s
            return self._start
        place: _T | str = self._start if self._place is None else self._place
        return place

    def looked(self, until: _T) -> None:
        """Up to there everything was found that was to be seen."""
        if self._newest is None or until > self._newest:
            self._newest = until

    def _pass(self, now_s: float) -> None:
        last_s, last = self._waiting[-1] if self._waiting else (float("-inf"), self._place)
        news = self._newest
        if news is not None and news != last and now_s - last_s >= self._late_s / _APART:
            self._waiting.append((now_s, news))
        while self._waiting and now_s - self._waiting[0][0] >= self._late_s:
            self._place = self._waiting.pop(0)[1]
