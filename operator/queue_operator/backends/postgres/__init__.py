"""The production store: PostgreSQL 15 or later."""

from queue_operator.backends.postgres.backend import PostgresBackend
from queue_operator.backends.postgres.migrate import migrate
from queue_operator.backends.postgres.one_loop import WrongLoop

__all__ = ["PostgresBackend", "WrongLoop", "migrate"]
