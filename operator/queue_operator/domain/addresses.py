"""Addresses of databases. A part of one is a password, so nothing is told of one that is not known
to be something else.
"""

import re
from typing import Final

from queue_operator.domain.errors import InvalidArgument

WRITTEN: Final = "postgresql://USER:PASSWORD@HOST:PORT/NAME"
NO_ADDRESS: Final = (
    f"is no address of a database: write it as {WRITTEN}, with special characters "
    "percent-encoded, or as key=value pairs"
)
_SCHEMES: Final = ("postgres", "postgresql")
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_PAIR: Final = re.compile(r"\s*[A-Za-z_]+\s*=")
_PORT: Final = re.compile(r"(\[[^\]]*\]|[^:]*)(:\d*)?")
_NAME: Final = re.compile(r"[A-Za-z_]+")


def scheme_of(address: str) -> str:
    """What comes before `:`, or nothing; pairs of key and value have none."""
    found = _SCHEME.match(address)
    return "" if found is None else found[1]


def is_pairs(address: str) -> bool:
    """Whether it is written as libpq's `host=... dbname=...`."""
    return _PAIR.match(address) is not None


def check_postgres_address(field: str, address: object) -> None:
    """Raises InvalidArgument unless `address` is that of a PostgreSQL, as far as this can be seen
    without libpq; an empty one leaves all to libpq's environment. What libpq would take for a host
    or a port although it is a part of the password is refused here, lest an error names it.
    """
    if not isinstance(address, str):
        raise InvalidArgument(field, f"must be {WRITTEN}, not {type(address).__name__}")
    if not address.strip() or is_pairs(address):
        return
    scheme = scheme_of(address)
    if scheme and scheme.lower() not in _SCHEMES and address[len(scheme) :].startswith("://"):
        raise InvalidArgument(field, f"needs PostgreSQL, not {scheme}: write it as {WRITTEN}")
    if scheme not in _SCHEMES or not address[len(scheme) :].startswith("://"):
        raise InvalidArgument(field, NO_ADDRESS)
    _check_uri(field, address[len(scheme) + 3 :])


def _check_uri(field: str, rest: str) -> None:
    place, path, _ = _parts(rest)
    user, _, hosts = place.rpartition("@")
    if "@" in user or "@" in path or not _is_plain(hosts):
        raise InvalidArgument(
            field,
            "has a special character where none can be, or a port that is no number: in user and "
            f"password write @ as %40, : as %3A, / as %2F, ? as %3F; as in {WRITTEN}",
        )


def _parts(rest: str) -> tuple[str, str, str]:
    """Users and hosts, the path, and the options."""
    before, _, query = rest.partition("?")
    place, _, path = before.partition("/")
    return place, path, query


def _is_plain(hosts: str) -> bool:
    return all(_PORT.fullmatch(host) for host in hosts.split(","))


def options_of(address: str) -> list[str]:
    """The names of the options at the end of a URL; none where they may be a part of a password."""
    place, _, query = _parts(address.partition("://")[2])
    if scheme_of(address) not in _SCHEMES or ("@" in query and "@" not in place):
        return []
    names = [one.partition("=")[0] for one in query.split("&")]
    return [name for name in names if _NAME.fullmatch(name)]
