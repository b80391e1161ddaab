"""Statistics on every store."""

from queue_operator.testing.backend.statistics import *  # noqa: F403
