"""How long the histories are."""

import asyncio
import os
from collections.abc import Callable, Coroutine
from typing import Any, Final

from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test
from tests.model.lockstep import Pair
from tests.model.machine import Histories

STEPS_PER_HISTORY: Final = 50
_USUAL, _FULL = 1000, 20_000
_IS_FULL: Final = os.environ.get("QUEUE_OPERATOR_TEST_FULL") == "1"
STEPS: Final = int(os.environ.get("QUEUE_OPERATOR_MODEL_STEPS", _FULL if _IS_FULL else _USUAL))
WALKED: Final[dict[str, tuple[int, int]]] = {}
"""Steps and histories by the names of the two stores."""


def walk(names: str, pair: Callable[[], Coroutine[Any, Any, Pair]]) -> None:
    """Walks at least STEPS steps of random histories."""
    with asyncio.Runner() as runner:

        class Machine(Histories):
            """Counts for this pair alone."""

        Machine.loop, Machine.pair = runner.get_loop(), staticmethod(pair)
        try:
            while Machine.walked < STEPS:
                run_state_machine_as_test(Machine, settings=_settings(STEPS - Machine.walked))
        finally:
            WALKED[names] = Machine.walked, Machine.histories


def _settings(steps: int) -> settings:
    return settings(
        max_examples=-(-steps // STEPS_PER_HISTORY),
        stateful_step_count=STEPS_PER_HISTORY,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
