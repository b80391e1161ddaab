"""SuspendJobs on our rigs."""

import pytest

from queue_operator.testing.queue.suspending import *  # noqa: F403

pytestmark = pytest.mark.asyncio(loop_scope="session")
