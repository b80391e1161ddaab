"""Close. Each test closes queues of its own on our rigs."""

import pytest

from queue_operator.testing.queue.closing import *  # noqa: F403

pytestmark = pytest.mark.asyncio(loop_scope="session")
