"""What all methods have in common, on every store."""

from queue_operator.testing.backend.errors import *  # noqa: F403
