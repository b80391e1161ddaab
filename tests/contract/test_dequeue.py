"""DequeueJobs on every store."""

from queue_operator.testing.backend.dequeue import *  # noqa: F403
