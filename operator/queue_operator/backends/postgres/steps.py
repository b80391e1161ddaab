"""A long time looked through piece by piece, where nobody knows how much lies in it. Pure."""

from datetime import datetime, timedelta
from typing import Final

_LEAST: Final = timedelta(seconds=1)
_NEAR: Final = timedelta(days=1)


class Steps:
    """Pieces from `begins_at` to `ends_at`: all in one at first; after a failure what lies before,
    and then within, a day of `now`, and then half of it; and twice as much after a success.
    """

    def __init__(self, begins_at: datetime, ends_at: datetime, now: datetime) -> None:
        self.begins_at = begins_at
        self._ends_at = ends_at
        self._likely = now - _NEAR, now + _NEAR
        self._step = ends_at - begins_at

    def next(self) -> tuple[datetime, datetime] | None:
        """The next piece; None after the last."""
        if self.begins_at >= self._ends_at:
            return None
        return self.begins_at, self._end()

    @property
    def is_whole(self) -> bool:
        """Whether the next piece is the last."""
        return self._end() >= self._ends_at

    def done(self) -> None:
        self.go_on_from(self._end())

    def go_on_from(self, at: datetime) -> None:
        """What lies before is over; `at` may also lie before the piece that was looked at."""
        self._step = min(self._step * 2, self._ends_at - at)
        self.begins_at = at

    def failed(self) -> None:
        """A piece of a second is the least: it is asked for again."""
        within = [at for at in self._likely if self.begins_at < at < self._end()]
        if within:
            self._step = within[0] - self.begins_at
        else:
            self._step = max(self._step / 2, _LEAST)

    def _end(self) -> datetime:
        return self.begins_at + min(self._step, self._ends_at - self.begins_at)
