"""Where the client's bearer token comes from."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

from queue_operator.domain.errors import Unauthenticated

Token = str | Callable[[], str] | None
"""A token, or what gives the current one; it is asked before every request."""

HEADER: Final = re.compile(r"[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?")
"""What a header of HTTP can hold."""


def file_token(path: Path | str) -> Callable[[], str]:
    """Reads the token from a file each time: the kubelet replaces projected ones.

    The callable raises OSError when the file cannot be read, Unauthenticated when it is no text.
    """

    def read() -> str:
        try:
            return Path(path).read_text("utf-8").strip()
        except UnicodeDecodeError:
            raise Unauthenticated(f"{path} holds no bearer token: it is no text") from None

    return read


def bearer(token: Token) -> str:
    """The current token, "" without one. Raises Unauthenticated for one that cannot be sent."""
    value = token() if callable(token) else token
    if value and not HEADER.fullmatch(value):
        raise Unauthenticated("the token holds characters that no header can")
    return value or ""


def authorization(token: Token) -> dict[str, str]:
    """The header for `token`, none without one."""
    value = bearer(token)
    return {"Authorization": f"Bearer {value}"} if value else {}
