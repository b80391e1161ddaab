"""Idempotency keys on every store."""

from queue_operator.testing.backend.idempotency import *  # noqa: F403
