"""Leases and failure modes on every store."""

from queue_operator.testing.backend.semantics_leases import *  # noqa: F403
