"""What quotas are compared with, on every store."""

from queue_operator.testing.backend.quotas import *  # noqa: F403
