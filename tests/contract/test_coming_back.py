"""Jobs that come back behind the claims, on every store."""

from queue_operator.testing.backend.coming_back import *  # noqa: F403
