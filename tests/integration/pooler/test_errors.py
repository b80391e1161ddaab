"""Through a pooler in transaction mode."""

from queue_operator.testing.backend.errors import *  # noqa: F403
