"""Following jobs on every store."""

from queue_operator.testing.backend.following import *  # noqa: F403
