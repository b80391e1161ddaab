"""Races on every store."""

from queue_operator.testing.backend.races import *  # noqa: F403
