"""EnqueueJob on every store."""

from queue_operator.testing.backend.submission import *  # noqa: F403
