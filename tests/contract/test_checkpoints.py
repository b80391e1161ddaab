"""Checkpoints on every store that keeps them."""

from queue_operator.testing.backend.checkpoints import *  # noqa: F403
