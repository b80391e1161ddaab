"""Failures and retries on every store."""

from queue_operator.testing.backend.failure import *  # noqa: F403
