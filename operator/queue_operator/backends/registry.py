"""Opens the backend that a URL names. Each is imported when it is asked for, so that what one
needs is not needed by those who use another.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final
from urllib.parse import unquote

from queue_operator.backends.protocol import Backend
from queue_operator.domain.errors import InvalidArgument
from queue_operator.domain.validation import DEFAULT_LIMITS, Limits

_MEMORY: Final = "memory://"
_SQLITE: Final = "sqlite:///path/of/the/file"
_POSTGRES: Final = "postgresql://user@host/database"


async def open_backend(url: str, *, limits: Limits = DEFAULT_LIMITS) -> Backend:
    """The backend of `memory://`, `sqlite:///path` or `postgresql://…`, ready for use.

    The path of a SQLite file is absolute; `sqlite:name.db` is one in the current folder. All
    else of a Postgres URL is as libpq reads it. Raises InvalidArgument for a URL that names no
    backend, or one that is not installed; Unavailable when the store cannot be reached.
    """
    scheme = url.partition(":")[0]
    if scheme not in _OPENERS:
        known = ", ".join((_MEMORY, _SQLITE, _POSTGRES))
        raise InvalidArgument("url", f"has the scheme {scheme!r}; known are {known}")
    return await _OPENERS[scheme](url, limits)


async def _memory(url: str, limits: Limits) -> Backend:
    from queue_operator.backends.memory import MemoryBackend

    if url != _MEMORY:
        raise InvalidArgument("url", f"must be {_MEMORY}: a store in memory has no name")
    return MemoryBackend(limits=limits)


async def _sqlite(url: str, limits: Limits) -> Backend:
    from queue_operator.backends.sqlite import SqliteBackend

    path = unquote(url.removeprefix("sqlite:").removeprefix("//"))
    named_host = url.startswith("sqlite://") and not path.startswith("/")
    if named_host or "?" in url or not path.strip("/"):
        raise InvalidArgument("url", f"must be like {_SQLITE}, with three slashes and no options")
    return await SqliteBackend.open(path, limits=limits)


async def _postgres(url: str, limits: Limits) -> Backend:
    try:
        from queue_operator.backends.postgres import PostgresBackend
    except ModuleNotFoundError as error:
        raise InvalidArgument(
            "url",
            f"{_POSTGRES} needs {error.name}, which is not installed: "
            "pip install 'queue-operator[server]'",
        ) from error
    return await PostgresBackend.open(url, limits=limits)


_OPENERS: Final[Mapping[str, Callable[[str, Limits], Awaitable[Backend]]]] = {
    "memory": _memory,
    "sqlite": _sqlite,
    "postgres": _postgres,
    "postgresql": _postgres,
}
