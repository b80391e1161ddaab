"""Searching jobs on every store."""

from queue_operator.testing.backend.search import *  # noqa: F403
