"""Traces of jobs, on every store."""

from queue_operator.testing.backend.traces import *  # noqa: F403
