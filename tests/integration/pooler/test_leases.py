"""Through a pooler in transaction mode."""

from queue_operator.testing.backend.leases import *  # noqa: F403
