"""Close on every store."""

from queue_operator.testing.backend.close import *  # noqa: F403
