"""Tokens: which of two attempts may still say how it ended on our rigs."""

import pytest

from queue_operator.testing.queue.tokens import *  # noqa: F403

pytestmark = pytest.mark.asyncio(loop_scope="session")
