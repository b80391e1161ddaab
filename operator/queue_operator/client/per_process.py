"""Connections that a fork must not share: two processes that read from one would get each other's
answers.
"""

import os
from collections.abc import Callable
from typing import Final, Generic, TypeVar

C = TypeVar("C")


class PerProcess(Generic[C]):
    """What `make` makes, anew in each process that asks for it."""

    def __init__(self, make: Callable[[], C]) -> None:
        self._make: Final = make
        self._pid = os.getpid()
        self._made = make()
        # Closed, even by being forgotten, it would take leave in the name of the parent.
        self._inherited: list[C] = []

    @property
    def mine(self) -> C:
        """The one of this process."""
        if (pid := os.getpid()) != self._pid:
            self._inherited.append(self._made)
            self._made = self._make()
            self._pid = pid
        return self._made
