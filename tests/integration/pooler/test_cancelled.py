"""Cancelled claims behind a pooler: their transaction is over before anybody else has its line."""

from queue_operator.testing.backend.cancelled import (
    test_a_cancelled_claim_leaves_its_jobs_to_others as test_a_cancelled_claim,
)
from queue_operator.testing.backend.cancelled import (
    test_a_cancelled_dequeue_leaves_its_jobs_to_others as test_a_cancelled_dequeue,
)

__all__ = ["test_a_cancelled_claim", "test_a_cancelled_dequeue"]
