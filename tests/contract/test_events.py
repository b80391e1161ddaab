"""The log of events on every store that keeps one."""

from queue_operator.testing.backend.events import *  # noqa: F403
