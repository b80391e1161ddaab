"""When a worker sends what it has to say: at once, or with what comes next."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest

from queue_operator.worker.client import Client
from queue_operator.worker.outcomes import MAX_BATCH
from queue_operator.worker.settings import WorkerSettings

CAPACITY = 10
LONG_S = 1000.0


@dataclass
class Said:
    """As much of a session as decides it."""

    running: int = 0
    unacknowledged: int = 1
    unsent: int = 1
    draining: bool = False
    outcomes: Any = field(init=False)

    def __post_init__(self) -> None:
        self.outcomes = self

    def __len__(self) -> int:
        return self.unacknowledged


def sends_at_once(said: Said, *, rested: bool) -> bool:
    session: Any = said
    client = Client(WorkerSettings(capacity=CAPACITY), session, coalesce_s=LONG_S)
    if not rested:
        client._wrote_s = asyncio.get_running_loop().time()
    client.wake()
    return client._full.is_set()


@pytest.mark.parametrize(
    ("said", "rested", "at_once"),
    [
        (Said(), True, True),
        (Said(), False, False),
        # More will come from these.
        (Said(running=1), True, False),
        # There is little room for jobs that this could let in.
        (Said(unacknowledged=CAPACITY // 2 + 1), False, True),
        (Said(unsent=MAX_BATCH), False, True),
        (Said(draining=True), False, True),
    ],
)
async def test_outcomes_wait_for_others_only_where_nobody_waits_for_them(
    said: Said, rested: bool, at_once: bool
) -> None:
    assert sends_at_once(said, rested=rested) is at_once
