"""StopJob, StopJobWithRetry and MarkJobUnknownStopped on every store."""

from queue_operator.testing.backend.stop import *  # noqa: F403
