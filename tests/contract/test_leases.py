"""Leases on every store."""

from queue_operator.testing.backend.leases import *  # noqa: F403
