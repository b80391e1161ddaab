"""Spawned children on every store."""

from queue_operator.testing.backend.spawning import *  # noqa: F403
