"""StreamJobs: how a stream ends, and what becomes of its jobs on our rigs."""

import pytest

from queue_operator.testing.queue.ending import *  # noqa: F403

pytestmark = pytest.mark.asyncio(loop_scope="session")
