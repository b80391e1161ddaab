"""FailJob on our rigs."""

import pytest

from queue_operator.testing.queue.fail import *  # noqa: F403

pytestmark = pytest.mark.asyncio(loop_scope="session")
