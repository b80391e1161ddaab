"""Guarantees and invariants on every store."""

from queue_operator.testing.backend.semantics_guarantees import *  # noqa: F403
