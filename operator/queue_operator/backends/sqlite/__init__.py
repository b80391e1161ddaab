"""The contract in a SQLite file."""

from queue_operator.backends.sqlite.backend import SqliteBackend

__all__ = ["SqliteBackend"]
