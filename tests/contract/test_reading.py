"""GetJob and GetJobStats on every store."""

from queue_operator.testing.backend.reading import *  # noqa: F403
