"""UpdateJobStatus on every store."""

from queue_operator.testing.backend.update import *  # noqa: F403
