"""Orders of outcomes, repeats and sweeps on every store."""

from queue_operator.testing.backend.repeats import *  # noqa: F403
