"""FailJob on every store."""

from queue_operator.testing.backend.fail import *  # noqa: F403
