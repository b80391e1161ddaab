"""Through a pooler in transaction mode."""

from queue_operator.testing.backend.complete import *  # noqa: F403
