"""What a storage must offer to be driven."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

TAGS: Final = frozenset({"bench", "region-1"})
JOB_TYPE: Final = "noop"

Claimed = Sequence[tuple[str, str]]
"""Pairs of job id and lease token."""


def job_id(number: int) -> str:
    return f"job-{number}"


def number_of(identifier: str) -> int:
    return int(identifier[4:])


@dataclass(frozen=True, slots=True)
class Stored:
    """What the database says in the end. `repeated` counts jobs of which it has an event, or
    a row, more often than once.
    """

    jobs: int
    completed: int
    repeated: int = 0


class Submitter(Protocol):
    """Jobs are named by `job_id`, and all have the same payload and two tags."""

    async def submit(self, numbers: range) -> None: ...

    async def stored(self) -> Stored: ...

    async def close(self) -> None: ...


class Store(Submitter, Protocol):
    """Jobs are claimed under a token, and completed under that token."""

    async def claim(self, limit: int) -> Claimed: ...

    async def complete(self, claimed: Claimed) -> int:
        """Completes jobs whose token is current, and says how many."""
        ...


class Opener(Protocol):
    """Makes the schema in an empty database and connects."""

    async def __call__(self, dsn: str, payload: bytes) -> Submitter: ...


Openers = Mapping[str, Opener]
