"""CancelJobs on our rigs."""

import pytest

from queue_operator.testing.queue.cancel import *  # noqa: F403

pytestmark = pytest.mark.asyncio(loop_scope="session")
