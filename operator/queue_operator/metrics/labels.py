"""Keeps the number of series bounded, whatever callers name their jobs."""

from collections.abc import Iterable
from typing import Final

from queue_operator.backends.figures import OTHER, Pair

MAX_PAIRS: Final = 200
"""Namespace and type pairs that get series of their own."""
MAX_NAMESPACES: Final = 50
"""Namespaces whose other types are summed up under their name."""


class LabelBudget:
    """The labels of a namespace and a job type: the first come are shown by name, the rest
    together as `other`. Shown stays shown, so that counters never go back.
    """

    def __init__(self, pairs: int = MAX_PAIRS, namespaces: int = MAX_NAMESPACES) -> None:
        self._max_pairs = pairs
        self._max_namespaces = namespaces
        self._pairs: set[tuple[str, str]] = set()
        self._namespaces: set[str] = set()

    def namespace(self, namespace: str) -> str:
        """The label for `namespace`."""
        if namespace not in self._namespaces:
            if len(self._namespaces) >= self._max_namespaces:
                return OTHER
            self._namespaces.add(namespace)
        return namespace

    def pair(self, namespace: str, job_type: str) -> tuple[str, str]:
        """The labels for a job of `job_type` in `namespace`."""
        shown = self.namespace(namespace)
        pair = (shown, job_type)
        if pair not in self._pairs:
            if shown != namespace or len(self._pairs) >= self._max_pairs:
                return shown, OTHER
            self._pairs.add(pair)
        return pair

    @property
    def names(self) -> frozenset[Pair]:
        """What is shown by name."""
        return frozenset(self._pairs)

    def prefer(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Gives what is left of the budget to `pairs` in their order, the largest first."""
        for namespace, job_type in pairs:
            self.pair(namespace, job_type)
