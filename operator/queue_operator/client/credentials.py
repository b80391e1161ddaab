"""Where the client's bearer token comes from."""

from collections.abc import Callable
from pathlib import Path

Token = str | Callable[[], str] | None
"""A token, or what gives the current one; it is asked before every request."""


def file_token(path: Path | str) -> Callable[[], str]:
    """Reads the token from a file each time: the kubelet replaces projected ones.

    The callable raises OSError when the file cannot be read.
    """
    return lambda: Path(path).read_text().strip()


def authorization(token: Token) -> dict[str, str]:
    """The header for `token`, none without one."""
    value = token() if callable(token) else token
    return {"Authorization": f"Bearer {value}"} if value else {}
