"""Progress on every store that keeps it."""

from queue_operator.testing.backend.progress import *  # noqa: F403
