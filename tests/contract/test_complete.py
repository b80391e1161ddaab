"""CompleteJob on every store."""

from queue_operator.testing.backend.complete import *  # noqa: F403
