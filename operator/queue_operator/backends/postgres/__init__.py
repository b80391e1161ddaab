"""The production store: PostgreSQL 15 or later."""

from queue_operator.backends.postgres.backend import PostgresBackend
from queue_operator.backends.postgres.migrate import migrate

__all__ = ["PostgresBackend", "migrate"]
