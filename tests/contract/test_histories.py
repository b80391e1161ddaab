"""Random histories on every store."""

from queue_operator.testing.backend.histories import *  # noqa: F403
