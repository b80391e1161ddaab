"""Through a pooler in transaction mode."""

from queue_operator.testing.backend.cancel import *  # noqa: F403
