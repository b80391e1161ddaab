"""Dependencies on every store."""

from queue_operator.testing.backend.dependencies import *  # noqa: F403
