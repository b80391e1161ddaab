"""Opens the backend that a URL names. Each is imported when it is asked for, so that what one
needs is not needed by those who use another.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Final, Protocol, TypedDict, Unpack
from urllib.parse import unquote

from queue_operator.backends.protocol import (
    Backend,
    Depths,
    EventLog,
    Failures,
    History,
    Lookup,
    Pauses,
    Places,
    Search,
    Signals,
    Statistics,
    Usages,
)
from queue_operator.backends.streams import Followed
from queue_operator.backends.watching import Watching
from queue_operator.backends.webhooks import Webhooks
from queue_operator.domain.addresses import is_pairs, scheme_of
from queue_operator.domain.errors import InvalidArgument
from queue_operator.domain.overdue import CANCEL_TIMEOUT_S
from queue_operator.domain.reach import Reach
from queue_operator.domain.validation import DEFAULT_LIMITS, Limits, check_kind

_MEMORY: Final = "memory://"
_SQLITE_MEMORY: Final = ":memory:"
_SQLITE: Final = "sqlite:///path/of/the/file"
_POSTGRES: Final = "postgresql://user@host/database"
_NOBODY: Final = Reach.nowhere(
    "no server works on such a store, so nobody would call it; whoever does so, with the store's "
    "`webhooks`, gives `limits` with `callbacks`"
)


class Store(
    Backend,
    Search,
    Lookup,
    History,
    Failures,
    EventLog,
    Signals,
    Statistics,
    Depths,
    Usages,
    Pauses,
    Places,
    Watching,
    Protocol,
):
    """What each of the three stores has."""

    @property
    def webhooks(self) -> Webhooks:
        """What is told of jobs that ended, and to whom."""
        ...

    @property
    def followed(self) -> Followed:
        """The log of events, as a hub (`queue.hub`) reads it for all who follow jobs."""
        ...


class PostgresOptions(TypedDict, total=False):
    """What is said of a PostgreSQL beside its address, as in `PostgresBackend.open`; the settings
    of a server have the same names (`database.pooler`).
    """

    pool_size: int
    connect_timeout_s: float
    statement_timeout_s: float
    pooler: bool
    listen_dsn: str | None


async def open_backend(
    url: str,
    *,
    limits: Limits = DEFAULT_LIMITS,
    cancel_timeout_s: float = CANCEL_TIMEOUT_S,
    **postgres: Unpack[PostgresOptions],
) -> Store:
    """The backend of `memory://`, `sqlite:///path` or `postgresql://…`, ready for use.

    The path of a SQLite file is absolute; `sqlite:name.db` is one in the current folder. The
    address of a Postgres is all as libpq reads it, also as key=value pairs. Raises InvalidArgument
    for a URL that names no backend, or one that is not installed, and for an option that is wrong
    or not of this backend; Unavailable when the store cannot be reached, and its kinds
    AccessRefused and SchemaMismatch where it can, and something there has to be changed.
    """
    check_kind("url", url, str)
    scheme = "postgresql" if is_pairs(url) else scheme_of(url)
    if scheme not in _OPENERS:
        known = ", ".join((_MEMORY, _SQLITE, _POSTGRES))
        # Nothing of it is told that may be a part of a password.
        wrong = f"has the scheme {scheme}" if f"{scheme}://" in url else "has no scheme"
        raise InvalidArgument("url", f"{wrong}; known are {known}")
    if postgres and scheme not in _POSTGRES_SCHEMES:
        raise InvalidArgument(next(iter(postgres)), "is an option of PostgreSQL alone")
    return await _OPENERS[scheme](url, limits, cancel_timeout_s, postgres)


async def _memory(url: str, limits: Limits, cancel_s: float, _: PostgresOptions) -> Store:
    from queue_operator.backends.memory import MemoryBackend

    if url != _MEMORY:
        raise InvalidArgument("url", f"must be {_MEMORY}: a store in memory has no name")
    return MemoryBackend(limits=_without_sender(limits), cancel_timeout_s=cancel_s)


async def _sqlite(url: str, limits: Limits, cancel_s: float, _: PostgresOptions) -> Store:
    from queue_operator.backends.sqlite import SqliteBackend

    path = unquote(url.removeprefix("sqlite:").removeprefix("//"))
    if path.strip("/") == _SQLITE_MEMORY:
        raise InvalidArgument("url", f"must name a file; for a store in memory give {_MEMORY}")
    named_host = url.startswith("sqlite://") and not path.startswith("/")
    if named_host or "?" in url or not path.strip("/"):
        raise InvalidArgument("url", f"must be like {_SQLITE}, with three slashes and no options")
    given = _without_sender(limits)
    return await SqliteBackend.open(path, limits=given, cancel_timeout_s=cancel_s)


def _without_sender(limits: Limits) -> Limits:
    """Of a store that no server has. Where a Postgres is, one may send what a library stored."""
    wrong = not isinstance(limits, Limits) or limits.callbacks is not None
    return limits if wrong else replace(limits, callbacks=_NOBODY)


async def _postgres(url: str, limits: Limits, cancel_s: float, options: PostgresOptions) -> Store:
    try:
        from queue_operator.backends.postgres import PostgresBackend
    except ModuleNotFoundError as error:
        raise InvalidArgument(
            "url",
            f"{_POSTGRES} needs {error.name}, which is not installed: "
            "pip install 'queue-operator[server]'",
        ) from error
    try:
        return await PostgresBackend.open(url, limits=limits, cancel_timeout_s=cancel_s, **options)
    except InvalidArgument as error:
        if error.field != "dsn":
            raise
        raise InvalidArgument("url", error.reason) from None


_Open = Callable[[str, Limits, float, PostgresOptions], Awaitable[Store]]
_POSTGRES_SCHEMES: Final = ("postgres", "postgresql")
_OPENERS: Final[Mapping[str, _Open]] = {
    "memory": _memory,
    "sqlite": _sqlite,
    "postgres": _postgres,
    "postgresql": _postgres,
}
