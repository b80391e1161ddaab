"""Fencing on every store."""

from queue_operator.testing.backend.tokens import *  # noqa: F403
