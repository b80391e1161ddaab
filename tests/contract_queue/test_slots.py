"""Capacity: when a slot is taken, and when it comes back on our rigs."""

import pytest

from queue_operator.testing.queue.slots import *  # noqa: F403

pytestmark = pytest.mark.asyncio(loop_scope="session")
