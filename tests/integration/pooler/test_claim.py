"""Through a pooler in transaction mode."""

from queue_operator.testing.backend.claim import *  # noqa: F403
