"""Tokens in other hands, on every store."""

from queue_operator.testing.backend.owners import *  # noqa: F403
from queue_operator.testing.backend.owners_plane import *  # noqa: F403
