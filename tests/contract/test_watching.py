"""Watching on every store."""

from queue_operator.testing.backend.watching import *  # noqa: F403
