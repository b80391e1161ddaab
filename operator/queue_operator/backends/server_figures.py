"""What a store can tell of the server that it is on, and of its connections to it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolUsage:
    """Connections that are open, at most `most`, and how many callers wait for one."""

    idle: int
    busy: int
    most: int
    waiters: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseFigures:
    """The server's own statistics of the database. None, or nothing, is what the role may not see.

    `table_bytes` and `dead_rows` are by table, `connections` by state: active, idle,
    idle_in_transaction, other.
    """

    size_bytes: int | None = None
    table_bytes: Mapping[str, int] = field(default_factory=dict)
    dead_rows: Mapping[str, int] = field(default_factory=dict)
    oldest_transaction_s: float | None = None
    connections: Mapping[str, int] | None = None


class Pooled(Protocol):
    """A store with a pool of connections."""

    def pool_usage(self) -> PoolUsage:
        """As it is now; from any thread."""

    def on_wait(self, observe: Callable[[float], None]) -> None:
        """From now on `observe` is told how many seconds each statement waited for a connection."""


@runtime_checkable
class Surveyed(Protocol):
    """A store on a database server."""

    async def database_figures(self) -> DatabaseFigures:
        """Looks once. Raises Unavailable when the server does not answer."""
        ...
