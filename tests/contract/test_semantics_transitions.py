"""The transition matrix and fencing on every store."""

from queue_operator.testing.backend.semantics_transitions import *  # noqa: F403
