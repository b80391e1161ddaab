"""Which jobs are not to be claimed: a copy of the table `pause`, as of the last look at it."""

from collections.abc import Collection


class Gate:
    """Shut for jobs of a paused namespace, and for those of a paused type in one. `version`
    rises with every change.
    """

    def __init__(self) -> None:
        self.version = 0
        self._paused: frozenset[tuple[str, str]] = frozenset()

    @property
    def is_open(self) -> bool:
        """Nothing is paused."""
        return not self._paused

    def lets(self, namespace: str, type_: str) -> bool:
        """Whether such jobs may be claimed."""
        return self._paused.isdisjoint(((namespace, ""), (namespace, type_)))

    def learn(self, paused: Collection[tuple[str, str]]) -> bool:
        """Takes over what the table says. True when something may be claimed again."""
        now, before = frozenset(paused), self._paused
        self._set(now)
        return bool(before - now)

    def shut(self, namespace: str, type_: str) -> None:
        self._set(self._paused | {(namespace, type_)})

    def open(self, namespace: str, type_: str) -> None:
        self._set(self._paused - {(namespace, type_)})

    def _set(self, paused: frozenset[tuple[str, str]]) -> None:
        if paused != self._paused:
            self.version += 1
            self._paused = paused
