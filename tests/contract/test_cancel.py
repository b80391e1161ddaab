"""CancelJobs on every store."""

from queue_operator.testing.backend.cancel import *  # noqa: F403
