"""Searching failures on every store."""

from queue_operator.testing.backend.failures import *  # noqa: F403
