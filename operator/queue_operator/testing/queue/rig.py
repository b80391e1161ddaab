"""What the suite needs of a queue beside its calls: opening more of it, letting time pass and
breaking its store.
"""

import os
from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol

from queue_operator.queue.protocol import Queue

LEASE_TTL_S = 600.0
"""So long that nothing comes by itself that a test waits for: no lease ends and no slot is found
free by a comparison unless the test lets time pass, or `tick`.
"""
NEVER_S = 3600.0
"""Nothing that a test waits for may come by the idle poll, unless it is what is asked for."""
BOUND_S = float(os.environ.get("QUEUE_OPERATOR_TEST_BOUND_S", "120"))
"""How long a test waits for what must come, however busy the machine is."""


class Pair(NamedTuple):
    """Where streams are opened and where everything else is asked: the same queue twice, or two
    queues on one store, as two replicas are.
    """

    streams: Queue
    calls: Queue


class QueueRig(Protocol):
    """A queue on an empty store. It may be shared by many tests: each keeps to a namespace and
    to assignee ids of its own. No idle poll may hide a wake-up that is missing.
    """

    @property
    def pair(self) -> Pair: ...

    @property
    def far(self) -> bool:
        """Whether calls go to another replica than streams."""
        ...

    @property
    def carries(self) -> bool:
        """Whether batches are on their way before anybody asks for them, as over a network. What
        was written there is the consumer's.
        """
        ...

    async def open(self, *, lease_ttl_s: float = LEASE_TTL_S, idle_poll_s: float = NEVER_S) -> Pair:
        """More queues on the same store, as new processes would open them, until `end`."""
        ...

    async def shut(self, pair: Pair) -> None:
        """Closes the queues of a pair that `open` gave, as their processes do when they stop. As
        often as one likes.
        """
        ...

    async def tick(self) -> None:
        """Does now what the queues do every third of a TTL: sweep, renew leases, compare slots
        with the store.
        """
        ...

    def looks(self, assignee_id: str) -> int:
        """How often the store was asked for jobs for this assignee so far."""
        ...

    async def age(self, seconds: float, *, outage: bool = False) -> None:
        """Makes everything that is stored that much older. Sweeps are taken to have gone on
        meanwhile unless there was an `outage`.
        """
        ...

    async def break_down(self) -> None:
        """Until `mend`, no queue reaches the store. What is stored stays as it is."""
        ...

    async def mend(self) -> None:
        """Ends `break_down`."""
        ...

    async def faults(self) -> list[str]:
        """Broken invariants of the store; empty when all is well."""
        ...

    async def end(self) -> None:
        """Closes what `open` gave to the test that is over."""
        ...


Ask = Callable[[], Awaitable[bool]]
