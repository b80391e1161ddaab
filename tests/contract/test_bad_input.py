"""Bad input on every store."""

from queue_operator.testing.backend.bad_input import *  # noqa: F403
