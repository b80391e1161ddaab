"""Cancels and their receipts on every store that keeps track of them."""

from queue_operator.testing.backend.cancel_inbox import *  # noqa: F403
