"""What operators do to a queue beside its jobs: pause it, and ask why a job does not run.

Part of `backends.protocol`, which is where to import it from.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol, runtime_checkable

from queue_operator.domain.job import DEFAULT_NAMESPACE
from queue_operator.domain.states import JobState


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """No job of `namespace`, or only none of `type` where one is named, is claimed. Running
    jobs go on. `by` is who paused, and `since` the store's to say.
    """

    namespace: str
    type: str = ""
    reason: str = ""
    by: str = ""
    since: datetime | None = None


@runtime_checkable
class Pauses(Protocol):
    """Pausing and resuming, for every replica: a claim that begins after `pause` returned, on
    whichever replica, takes no job of what is paused, at the latest 250 ms later.
    """

    async def pause(self, pause: Pause) -> Pause:
        """Stores it; an earlier one of the same namespace and type is replaced, but `since` stays.

        Raises InvalidArgument for a bad name.
        """
        ...

    async def resume(self, namespace: str, type: str = "") -> bool:
        """Ends the pause of exactly this namespace and type; False where there was none."""
        ...

    async def pauses(self, namespace: str | None = None) -> list[Pause]:
        """Those of a namespace, or of all, by namespace and type."""
        ...


@runtime_checkable
class Suspensions(Protocol):
    """Single jobs that are not to be claimed, whatever their state."""

    async def set_suspended(
        self, wanted: Mapping[tuple[str, str], bool]
    ) -> Collection[tuple[str, str]]:
        """Suspends jobs (True) and resumes them (False), by namespace and id, all in one step; a
        repeat changes nothing. Gives the names that are left alone: there is no such job, or it
        has ended.

        A claim that begins afterwards takes none that is suspended. One that runs goes on, and
        waits if it is to be tried again. A job that is resumed has the place that it had, and is
        eligible from now on, or when what else it waits for is over.
        Raises InvalidArgument for bad names.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a waiting job stands. `ahead` counts the eligible jobs of its namespace and type
    that are claimed before it, paused or not, up to `AHEAD_BOUND` (`ahead_is_exact`). `parents`
    are the jobs it depends on, in order, and the state in which each ended, None while it has not.
    `pauses` are those over its namespace and type, whatever its state.
    """

    ahead: int = 0
    ahead_is_exact: bool = True
    parents: Mapping[str, JobState | None] = field(default_factory=dict)
    pauses: tuple[Pause, ...] = ()


AHEAD_BOUND = 10_000
"""How far a place counts the jobs ahead one by one."""


@runtime_checkable
class Places(Protocol):
    """Why a job waits, as far as the store knows."""

    async def place_of(self, job_id: str, *, namespace: str = DEFAULT_NAMESPACE) -> Place:
        """Raises JobNotFound. A job that does not wait has nobody ahead."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What a namespace holds now: jobs that wait, whatever for, and jobs that hold a slot."""

    pending: int = 0
    running: int = 0


@runtime_checkable
class Usages(Protocol):
    """What quotas are compared with."""

    async def usage_of(self, namespaces: Collection[str]) -> Mapping[str, Usage]:
        """By namespace, from the counts that are kept anyway; no look at a job."""
        ...

    async def take_tokens(
        self, bucket: str, amount: float, *, rate_per_s: float, burst: float
    ) -> float:
        """Takes `amount` from a bucket that all replicas share and that refills at
        `rate_per_s` up to `burst`. Gives 0 when it was taken, else, with nothing taken, after how
        many seconds it will be there. More than `burst` is taken from a full bucket, which is in
        debt then. A new bucket is full. A cancelled call may have taken it: it comes back with
        time. Raises InvalidArgument for numbers not above 0.
        """
        ...

    async def return_tokens(
        self, bucket: str, amount: float, *, rate_per_s: float, burst: float
    ) -> None:
        """Gives back what was taken and not used; a full bucket holds no more. Arguments as for
        `take_tokens`.
        """
        ...

    async def taken_keys(self, keys: Collection[tuple[str, str]]) -> Collection[tuple[str, str]]:
        """Of idempotency keys, each after its namespace, those that a job has."""
        ...
