"""Worker sessions on every store."""

from queue_operator.testing.backend.sessions import *  # noqa: F403
