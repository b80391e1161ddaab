"""Suspended jobs on every store."""

from queue_operator.testing.backend.suspensions import *  # noqa: F403
