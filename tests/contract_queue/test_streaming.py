"""StreamJobs: what is given, to whom and when on our rigs."""

import pytest

from queue_operator.testing.queue.streaming import *  # noqa: F403

pytestmark = pytest.mark.asyncio(loop_scope="session")
