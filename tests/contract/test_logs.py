"""The logs of handlers on every store that keeps them."""

from queue_operator.testing.backend.logs import *  # noqa: F403
