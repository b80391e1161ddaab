"""Retries on every store."""

from queue_operator.testing.backend.semantics_retry import *  # noqa: F403
