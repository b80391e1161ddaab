"""The invariants on every store."""

from queue_operator.testing.backend.invariants import *  # noqa: F403
