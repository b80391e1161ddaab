"""Where jobs stand, on every store."""

from queue_operator.testing.backend.places import *  # noqa: F403
