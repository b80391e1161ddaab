"""What is told of jobs that ended, on every store."""

from queue_operator.testing.backend.webhooks import *  # noqa: F403
