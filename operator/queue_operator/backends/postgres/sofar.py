"""How far a process has looked through rows that are deleted once they were found, so that it does
not pass by all that is dead while an old snapshot keeps it.
"""

from datetime import datetime
from typing import Final

_EVER: Final = "-infinity"


class Ended:
    """Until when what has ended was pruned. The place is that of the look before the last one: what
    somebody held then is looked at once more. In another history of the database all is looked at.
    """

    def __init__(self) -> None:
        self._history = ""
        self._last: datetime | None = None
        self._before: datetime | None = None

    def after(self, history: str) -> datetime | str:
        if history != self._history:
            self._history, self._last, self._before = history, None, None
        return self._before or _EVER

    def pruned(self, until: datetime) -> None:
        """Nothing is left until then but what somebody holds."""
        if self._last is None or until > self._last:
            self._before, self._last = self._last, until
