"""Through a pooler in transaction mode."""

from queue_operator.testing.backend.races import *  # noqa: F403
