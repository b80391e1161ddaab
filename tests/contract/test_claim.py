"""Claims on every store."""

from queue_operator.testing.backend.claim import *  # noqa: F403
