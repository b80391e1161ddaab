"""The shipped suite on SQLiteBackend."""

from queue_operator.testing.tasks import *  # noqa: F403
