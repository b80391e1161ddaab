"""MarkWorkerUnresponsive on every store."""

from queue_operator.testing.backend.unresponsive import *  # noqa: F403
