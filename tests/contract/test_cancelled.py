"""Cancelled calls on every store."""

from queue_operator.testing.backend.cancelled import *  # noqa: F403
