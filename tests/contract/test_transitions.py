"""The state table on every store."""

from queue_operator.testing.backend.transitions import *  # noqa: F403
