"""CleanupExpiredJobs and DeleteJobs on our rigs."""

import pytest

from queue_operator.testing.queue.maintenance import *  # noqa: F403

pytestmark = pytest.mark.asyncio(loop_scope="session")
