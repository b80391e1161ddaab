"""Errors of every call: a cancelled task, a wrong argument, a store that is away on our rigs."""

import pytest

from queue_operator.testing.queue.errors import *  # noqa: F403

pytestmark = pytest.mark.asyncio(loop_scope="session")
