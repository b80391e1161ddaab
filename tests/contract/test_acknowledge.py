"""AcknowledgeCancellation on every store."""

from queue_operator.testing.backend.acknowledge import *  # noqa: F403
