"""EnqueueJobs on every store."""

from queue_operator.testing.backend.batches import *  # noqa: F403
