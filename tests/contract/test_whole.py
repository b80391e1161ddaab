"""What is promised as one step is seen whole, on every store."""

from queue_operator.testing.backend.whole import *  # noqa: F403
