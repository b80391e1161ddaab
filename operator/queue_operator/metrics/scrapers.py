"""Who scrapes. Of two Prometheus servers, each has to be shown what was counted."""

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from math import inf
from typing import Any, Final, Self

LATELY_S: Final = 120.0
"""Whoever scraped since then may come again."""
_MOST: Final = 16
_ADDRESS, _PROGRAM = "REMOTE_ADDR", "HTTP_USER_AGENT"
_TIMEOUT: Final = "HTTP_X_PROMETHEUS_SCRAPE_TIMEOUT_SECONDS"


@dataclass(frozen=True, slots=True)
class Scraper:
    """One who scrapes, as far as a request tells. `is_regular` is whoever says, as Prometheus and
    those like it do, how long it waits; anybody else may have come once to look.
    """

    address: str = ""
    program: str = ""
    is_regular: bool = False

    @classmethod
    def of(cls, environ: Mapping[str, Any]) -> Self:
        """Of a request to a WSGI server."""
        return cls(environ.get(_ADDRESS, ""), environ.get(_PROGRAM, ""), _TIMEOUT in environ)


UNKNOWN: Final = Scraper()
current: Final[ContextVar[Scraper]] = ContextVar("scraper", default=UNKNOWN)
"""Whose scrape this is, in the thread that answers it."""


class Audience:
    """Who came lately, and which state each was shown last."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._seen: dict[Scraper, tuple[float, int]] = {}
        self._last = -inf

    def shown(self, scraper: Scraper, state: int) -> None:
        """It came, and was shown this."""
        self._last = self._monotonic()
        self._seen.pop(scraper, None)
        self._seen[scraper] = self._last, state
        if len(self._seen) > _MOST:
            # The first in it is the one that has been away for longest.
            del self._seen[next(iter(self._seen))]

    def sent_away(self, scraper: Scraper, state: int) -> None:
        """It came when there was nothing to show; who is new has missed nothing up to `state`."""
        self.shown(scraper, self._seen.get(scraper, (0.0, state))[1])

    def within(self, seconds: float) -> bool:
        return self._monotonic() - self._last <= seconds

    def lately(self) -> dict[Scraper, int]:
        """Whoever may come again, with what each was shown: those who scrape regularly; where none
        does, all.
        """
        since = self._monotonic() - LATELY_S
        found = {one: state for one, (at, state) in self._seen.items() if at >= since}
        return {one: state for one, state in found.items() if one.is_regular} or found
