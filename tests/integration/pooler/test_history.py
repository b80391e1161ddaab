"""Through a pooler in transaction mode."""

from queue_operator.testing.backend.history import *  # noqa: F403
