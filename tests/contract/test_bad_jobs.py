"""Bad jobs on every store."""

from queue_operator.testing.backend.bad_jobs import *  # noqa: F403
