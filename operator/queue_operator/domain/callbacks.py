"""Where somebody wants to hear that a job has ended."""

import re
from functools import lru_cache
from typing import Final
from urllib.parse import urlsplit

from queue_operator.domain.errors import InvalidArgument
from queue_operator.domain.limits import MAX_URL_CHARACTERS
from queue_operator.domain.reach import Reach

_SCHEMES: Final = ("http", "https")
_REMEMBERED: Final = 1000
"""So many URLs are judged once."""
# What a URL may hold unescaped (RFC 3986); anything else would be sent as something else.
_URL: Final = re.compile(r"[A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=%]+")


def check_callback_url(field: str, url: object, reach: Reach | None = None) -> None:
    """Raises InvalidArgument unless it is an absolute http or https URL with a host, without
    credentials and fragment, not too long, and within `reach`. Whoever does not know the rules of
    the server leaves those to it.
    """
    if not isinstance(url, str):
        raise InvalidArgument(field, f"must be a string, not {type(url).__name__}")
    if len(url) > MAX_URL_CHARACTERS:
        raise InvalidArgument(
            field, f"has {len(url)} characters; the limit is {MAX_URL_CHARACTERS}"
        )
    fault = _fault(url, reach)
    if fault is not None:
        raise InvalidArgument(field, fault)


@lru_cache(maxsize=_REMEMBERED)
def _fault(url: str, reach: Reach | None) -> str | None:
    """Most jobs of a batch have the same one."""
    fault = _malformed(url)
    return fault if fault is not None or reach is None else reach.url_fault(url)


def _malformed(url: str) -> str | None:
    if not _URL.fullmatch(url):
        return "must be a URL; escape blanks and other characters as %XX"
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return "must be a URL with a host, and a port from 1 to 65535 if one is given"
    if parts.scheme not in _SCHEMES:
        return "must begin with http:// or https://"
    if not host or port == 0:
        return "must be a URL with a host, and a port from 1 to 65535 if one is given"
    # Whoever may look at the job would see them, and so would every log on the way.
    if "@" in parts.netloc:
        return "must not hold credentials; protect the receiver in another way"
    if "#" in url:
        return "must not have a fragment; it would never be sent"
    return None
