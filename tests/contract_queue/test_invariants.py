"""Histories that nobody chose, and what must hold in each on our rigs."""

import pytest

from queue_operator.testing.queue.invariants import *  # noqa: F403

pytestmark = pytest.mark.asyncio(loop_scope="session")
