"""Pauses on every store."""

from queue_operator.testing.backend.pauses import *  # noqa: F403
