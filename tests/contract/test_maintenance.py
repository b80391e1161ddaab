"""CleanupExpiredJobs and ResetRunningJobs on every store."""

from queue_operator.testing.backend.maintenance import *  # noqa: F403
