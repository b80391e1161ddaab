"""DeleteJobs on every store."""

from queue_operator.testing.backend.delete import *  # noqa: F403
