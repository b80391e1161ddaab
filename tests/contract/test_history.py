"""Histories on every store."""

from queue_operator.testing.backend.history import *  # noqa: F403
